//! How many threads pay off.

use crate::units::count32;
use std::collections::HashSet;
use std::path::Path;

/// Physical cores, but no more than this process may use; at least 1.
pub(super) fn physical_cores() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = cores_under(Path::new("/sys/devices/system/cpu"));
    count32(cores.map_or(allowed, |cores| cores.min(allowed)).max(1))
}

/// Distinct sets of sibling threads; `None` where the kernel does not tell.
fn cores_under(folder: &Path) -> Option<usize> {
    let siblings: HashSet<String> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("topology/thread_siblings_list")).ok())
        .collect();
    (!siblings.is_empty()).then_some(siblings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_count_once() {
        let folder = tempfile::tempdir().unwrap();
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let topology = folder.path().join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        assert_eq!(cores_under(folder.path()), Some(2));
        assert_eq!(cores_under(&folder.path().join("nothing")), None);
        assert!(physical_cores() >= 1);
    }
}
