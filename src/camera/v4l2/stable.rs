//! Finds a camera again after it was unplugged: by the links that udev keeps, which name the camera or its port and not
//! the number that the kernel gives out anew.

use std::path::{Path, PathBuf};

/// The link by which `device` is to be opened from now on; `None` when there is none (containers, no udev).
///
/// A link that the user named stays as it is. Otherwise `by-id` (the camera, on any port) is taken, and `by-path` (the
/// port) where another camera of the same name is plugged in, since their `by-id` links may be the same.
pub(super) fn link(device: &Path, links: &Path, class: &Path) -> Option<PathBuf> {
    if std::fs::symlink_metadata(device).is_ok_and(|metadata| metadata.file_type().is_symlink()) {
        return Some(device.to_owned());
    }
    let target = device.canonicalize().ok()?;
    let by_id = find(&links.join("by-id"), &target);
    let by_path = find(&links.join("by-path"), &target);
    if has_twin(&target, class) { by_path.or(by_id) } else { by_id.or(by_path) }
}

fn find(folder: &Path, target: &Path) -> Option<PathBuf> {
    let mut links: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    links.sort();
    links.into_iter().find(|link| link.canonicalize().is_ok_and(|found| found == target))
}

/// Whether another capture node (`index` 0) carries the same name as `device`.
fn has_twin(device: &Path, class: &Path) -> bool {
    let name_of = |node: &Path| std::fs::read_to_string(node.join("name")).ok();
    let Some(own) = device.file_name() else { return false };
    let Some(own_name) = name_of(&class.join(own)) else { return false };
    let Ok(entries) = std::fs::read_dir(class) else { return false };
    entries.filter_map(|entry| entry.ok()).any(|entry| {
        let first = std::fs::read_to_string(entry.path().join("index")).is_ok_and(|index| index.trim() == "0");
        first && entry.file_name() != own && name_of(&entry.path()).as_ref() == Some(&own_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn by_id_first_by_path_for_twins_and_named_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["by-id", "by-path", "class/video0", "class/video1", "class/video2"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for (node, name, index) in [("video0", "Cam", "0"), ("video1", "Cam", "1"), ("video2", "Other", "0")] {
            std::fs::write(root.join(node), b"").unwrap();
            std::fs::write(root.join("class").join(node).join("name"), name).unwrap();
            std::fs::write(root.join("class").join(node).join("index"), index).unwrap();
        }
        symlink("../video0", root.join("by-id/usb-Cam-index0")).unwrap();
        symlink("../video0", root.join("by-path/usb-1:1-index0")).unwrap();
        let found = |name: &str| link(&root.join(name), root, &root.join("class"));
        assert_eq!(found("video0"), Some(root.join("by-id/usb-Cam-index0")));
        assert_eq!(found("by-path/usb-1:1-index0"), Some(root.join("by-path/usb-1:1-index0")));
        assert_eq!(found("video2"), None);
        assert_eq!(found("video9"), None);
        std::fs::write(root.join("class/video2/name"), "Cam").unwrap();
        assert_eq!(found("video0"), Some(root.join("by-path/usb-1:1-index0")));
    }
}
