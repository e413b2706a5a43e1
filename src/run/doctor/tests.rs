use super::*;
use std::path::Path;

/// A root folder of a Jetson in trouble.
fn jetson(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/meminfo", "MemTotal:        7802404 kB\nMemFree: 1 kB\nMemAvailable:    2048000 kB\n");
    write("proc/device-tree/model", "NVIDIA Jetson Orin Nano\0");
    write(
        "proc/self/status",
        "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t4 1000\n",
    );
    write("etc/passwd", "root:x:0:0::/:/bin/sh\nline:x:1000:1000::/:/bin/sh\n");
    write("etc/group", "root:x:0:\nadm:x:4:\nline:x:1000:\n");
    write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\n# more\n");
    write("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=7W >\n");
    write("var/lib/nvpmodel/status", "pmode:0001");
    write("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n");
    write("sys/class/thermal/thermal_zone0/temp", "91500\n");
    write("sys/class/thermal/thermal_zone1/type", "off-thermal\n");
    write("sys/class/thermal/thermal_zone1/temp", "-256000\n");
    write("sys/class/thermal/cooling_device0/type", "pwm-fan\n");
    write("sys/class/thermal/cooling_device0/cur_state", "3\n");
    write("sys/class/thermal/cooling_device1/type", "gpu-throttle-alert\n");
    write("sys/class/thermal/cooling_device1/cur_state", "1\n");
    write("sys/class/hwmon/hwmon1/oc1_event_cnt", "12\n");
    write("sys/class/devfreq/17000000.gpu/cur_freq", "306000000\n");
    write("sys/class/devfreq/17000000.gpu/max_freq", "624750000\n");
    std::fs::create_dir_all(folder.join("dev/video0")).unwrap();
    write("dev/nvmap", "");
    std::os::unix::fs::symlink("nowhere", folder.join("dev/nvidia0")).unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.join("dev/nvhost-gpu")).unwrap();
}

fn examine_at(root: &Path) -> Report {
    let search = Search { directory: None };
    examine(&Request { engine: None, flavour: None, search, root: root.to_owned() }).unwrap()
}

/// Case R07: a folder, a file and a dangling link in place of devices are told apart, with owner and our groups.
#[test]
fn r07_nodes_that_are_none_are_troubles_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    jetson(folder.path());
    let report = examine_at(folder.path());
    let kinds: Vec<_> = report.nodes.iter().map(|node| (node.path.to_str().unwrap(), node.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("/dev/nvhost-gpu", "character device"),
            ("/dev/nvidia0", "broken link"),
            ("/dev/nvmap", "file"),
            ("/dev/video0", "folder")
        ]
    );
    assert_eq!(report.identity.user, "line");
    assert_eq!(report.identity.groups, ["adm", "line"]);
    for words in ["found folder at /dev/video0", "found file at /dev/nvmap", "found broken link at /dev/nvidia0"] {
        let trouble = report.troubles.iter().find(|trouble| trouble.what.contains(words)).unwrap();
        assert!(trouble.way_out.as_ref().unwrap().contains("container"));
    }
    assert!(!report.troubles.iter().any(|trouble| trouble.what.contains("nvhost-gpu")));
}

#[test]
fn r07_a_node_of_a_group_that_we_lack_names_the_command() {
    let node = Node {
        path: "/dev/nvmap".into(),
        kind: "character device",
        owner: "root".into(),
        group: "video".into(),
        mode: "0660".into(),
        usable: false,
    };
    let identity = Identity { user: "line".into(), groups: vec!["line".into()] };
    let (what, way_out) = nodes::troubles(&[node], &identity).remove(0);
    assert!(what.contains("root:video (0660)") && what.contains("`line` may not"), "{what}");
    assert!(way_out.contains("usermod -aG video line"), "{way_out}");
}

#[test]
fn power_mode_clocks_heat_and_throttling_are_read() {
    let folder = tempfile::tempdir().unwrap();
    jetson(folder.path());
    let report = examine_at(folder.path());
    let board = &report.board;
    assert_eq!(board.model.as_deref(), Some("NVIDIA Jetson Orin Nano"));
    assert_eq!(board.jetson_release.as_deref(), Some("R36 (release), REVISION: 4.3"));
    assert_eq!(board.power_mode.as_deref(), Some("1 (7W)"));
    assert_eq!(board.memory_available, Some(Bytes(2_048_000 * 1024)));
    assert_eq!(board.clocks.len(), 1);
    assert_eq!((board.clocks[0].now_mhz, board.clocks[0].most_mhz), (306.0, Some(624.75)));
    assert_eq!(board.temperatures.len(), 1, "a sensor that is off is left out");
    let said: Vec<_> = report.troubles.iter().map(|trouble| trouble.what.as_str()).collect();
    for words in ["`cpu-thermal` is at 92 °C", "gpu-throttle-alert is at cooling step 1", "oc1_event_cnt: 12 events"] {
        assert!(said.iter().any(|line| line.contains(words)), "{words}: {said:?}");
    }
    assert!(!said.iter().any(|line| line.contains("fan")), "a fan that turns is no throttling");
}

#[test]
fn an_empty_root_is_a_report_without_figures() {
    let folder = tempfile::tempdir().unwrap();
    let report = examine_at(folder.path());
    assert_eq!((report.nodes.len(), report.board.memory_total, report.board.clocks.len()), (0, None, 0));
    assert!(serde_json::to_string(&report).unwrap().contains("\"edge_run\""));
}
