//! R07: what stands where the camera should be is a folder, a file, another device, nothing, or forbidden.

use edge_trt::ErrorKind;
use edge_trt::camera::{SourceSpec, open};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn refused(path: &Path) -> edge_trt::Error {
    let spec = SourceSpec::parse_camera(path.to_str().unwrap()).unwrap();
    match open(&spec, "cam".into()) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error,
    }
}

#[test]
fn whatever_is_no_camera_gives_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.bin");
    std::fs::write(&file, b"x").unwrap();
    for (path, expected) in [
        (folder.path(), "found a folder, expected a video device"),
        (file.as_path(), "found a regular file, expected a video device"),
        (Path::new("/dev/null"), "found a device that gives no video"),
        (&folder.path().join("missing"), "no such camera"),
        (&file.join("below"), "no such camera"),
    ] {
        let error = refused(path);
        assert_eq!(error.kind(), ErrorKind::Source, "{error}");
        assert!(error.message().contains(expected) && !error.to_string().contains("os error"), "{error}");
        assert!(error.hint_text().is_some(), "{error}");
        assert_eq!(error.place(), Some(path.to_str().unwrap()));
    }
}

/// Root is refused nothing, so the test runs itself as an ordinary user.
#[test]
fn a_forbidden_node_names_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("video7");
    std::fs::write(&node, b"").unwrap();
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&node).is_err() {
        check_forbidden(&node);
        return;
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The test program may lie where an ordinary user cannot reach it.
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let run = || {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["--exact", "r07_device_nodes::forbidden_child", "--ignored", "--nocapture"])
            .env("CHILD_SOURCE", &node)
            .current_dir("/")
            .output()
    };
    // A test that forks beside this one holds the copy open for writing until it execs: the file is "busy" for a moment.
    let busy = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).contains("busy");
    let mut output = run();
    for _ in 0..20 {
        if !output.as_ref().is_ok_and(busy) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        output = run();
    }
    match output {
        Err(error) => crate::common::lacks("setpriv", &format!("setpriv to become an ordinary user ({error})")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
#[ignore = "run as an ordinary user by the test above"]
fn forbidden_child() {
    if let Some(node) = std::env::var_os("CHILD_SOURCE") {
        check_forbidden(Path::new(&node));
    }
}

fn check_forbidden(node: &Path) {
    let error = refused(node);
    assert_eq!(error.kind(), ErrorKind::MachineLacks, "{error}");
    assert!(error.message().contains("may not open") && error.hint_text().unwrap().contains("video"), "{error}");
}
