//! Device nodes: what they are, whose they are, and whether this process may open them (case R07).

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Beginnings of the names in `/dev` that a GPU or a camera needs.
const NODES: [&str; 4] = ["nvidia", "nvmap", "nvhost", "video"];
/// Most nodes listed.
const MOST_NODES: usize = 256;

/// One node in `/dev`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Where it lies.
    pub path: PathBuf,
    /// `character device`, `folder`, `file`, `broken link`, …
    pub kind: &'static str,
    /// Name of the owner, or the number where no name is known.
    pub owner: String,
    /// Name of the group, or the number.
    pub group: String,
    /// Permission bits, as in `0660`.
    pub mode: String,
    /// Whether this process may read and write it.
    pub usable: bool,
}

/// Who this process is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Identity {
    /// User name or number.
    pub user: String,
    /// Names or numbers of its groups.
    pub groups: Vec<String>,
}

/// Names by number, from `etc/passwd` or `etc/group`.
struct Names(BTreeMap<u32, String>);

impl Names {
    fn read(path: &Path) -> Names {
        let text = fs::read_to_string(path).unwrap_or_default();
        let entry = |line: &str| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            Some((number.parse().ok()?, name.to_owned()))
        };
        Names(text.lines().filter_map(entry).collect())
    }

    fn name(&self, number: u32) -> String {
        self.0.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }
}

/// The nodes below `root`, and who this process is there.
pub(super) fn look(root: &Path) -> (Vec<Node>, Identity) {
    let (users, groups) = (Names::read(&root.join("etc/passwd")), Names::read(&root.join("etc/group")));
    let mut paths: Vec<PathBuf> = match fs::read_dir(root.join("dev")) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| is_wanted(path)).collect(),
        Err(_) => vec![],
    };
    paths.sort();
    paths.truncate(MOST_NODES);
    let nodes = paths.iter().map(|path| node(root, path, &users, &groups)).collect();
    (nodes, identity(root, &users, &groups))
}

fn is_wanted(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| NODES.iter().any(|wanted| name.starts_with(wanted)) && name != "nvidia-caps")
}

fn node(root: &Path, path: &Path, users: &Names, groups: &Names) -> Node {
    let shown = path.strip_prefix(root).map_or_else(|_| path.to_owned(), |inside| Path::new("/").join(inside));
    let Ok(about) = fs::metadata(path) else {
        let unknown = || "?".to_owned();
        return Node {
            path: shown,
            kind: "broken link",
            owner: unknown(),
            group: unknown(),
            mode: unknown(),
            usable: false,
        };
    };
    let kind = about.file_type();
    let kind = match () {
        () if kind.is_char_device() => "character device",
        () if kind.is_dir() => "folder",
        () if kind.is_file() => "file",
        () if kind.is_block_device() => "block device",
        () => "something else",
    };
    Node {
        path: shown,
        kind,
        owner: users.name(about.uid()),
        group: groups.name(about.gid()),
        mode: format!("{:04o}", about.mode() & 0o7777),
        usable: kind == "character device" && File::options().read(true).write(true).open(path).is_ok(),
    }
}

/// From `proc/self/status`, which needs no foreign call.
fn identity(root: &Path, users: &Names, groups: &Names) -> Identity {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let numbers = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    // Real, effective, saved, file system.
    let user = numbers("Uid:").get(1).map_or_else(|| "?".to_owned(), |&number| users.name(number));
    let mut all = numbers("Groups:");
    all.extend(numbers("Gid:").get(1));
    all.sort_unstable();
    all.dedup();
    Identity { user, groups: all.into_iter().map(|number| groups.name(number)).collect() }
}

/// What is wrong with the nodes: sentence and way out.
pub(super) fn troubles(nodes: &[Node], identity: &Identity) -> Vec<(String, String)> {
    let mut found = vec![];
    for node in nodes {
        let path = node.path.display();
        if node.kind != "character device" {
            let way_out = "a container was started while the device was missing, or the driver's links are gone: start it again with \
                           the device there";
            found.push((format!("found {} at {path}, expected a character device", node.kind), way_out.to_owned()));
        } else if !node.usable && identity.groups.contains(&node.group) {
            found.push((
                format!("{path} cannot be opened although `{}` is a group of ours", node.group),
                "another program may hold it, or a container lacks the device rule: start the container again"
                    .to_owned(),
            ));
        } else if !node.usable {
            found.push((
                format!(
                    "{path} belongs to {}:{} ({}), and `{}` may not open it",
                    node.owner, node.group, node.mode, identity.user
                ),
                format!(
                    "add the user to the group: `usermod -aG {} {}` (in a container: `--group-add`)",
                    node.group, identity.user
                ),
            ));
        }
    }
    found
}
