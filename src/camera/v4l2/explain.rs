//! Says what an error number of a camera means and what to do about it.

use crate::error::{Error, ErrorKind};
use crate::ffi::v4l2::{Capability, capability};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The node could not be opened.
pub(super) fn open_failed(path: &Path, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => missing(path),
        Some(libc::EISDIR) => not_a_camera(path),
        Some(libc::EACCES | libc::EPERM) => {
            Error::machine_lacks("this user may not open the camera").because(error).hint(
                "add the user to the group that owns the node, mostly `video`: `sudo usermod -aG video $USER`, then log \
                 in again; in a container pass `--device` and `--group-add video`",
            )
        }
        Some(libc::EBUSY) => busy(path),
        Some(libc::ENXIO | libc::ENODEV) => {
            Error::source_failed("the node is there, but no camera is behind it").because(error)
        }
        _ => Error::source_failed("the camera cannot be opened").because(error),
    }
}

fn missing(path: &Path) -> Error {
    let error = Error::source_failed("no such camera");
    let Ok(entries) = fs::read_dir("/dev") else { return error };
    let mut nodes: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
        .filter(|node| node.starts_with("/dev/video"))
        .collect();
    nodes.sort();
    if nodes.is_empty() {
        return error.hint("this machine has no /dev/video* node: plug the camera in; in a container pass `--device`");
    }
    error.hint(format!("found {}; `{}` is not among them", nodes.join(", "), path.display()))
}

/// The node opens, but is no video device: says what it is.
pub(super) fn not_a_camera(path: &Path) -> Error {
    let found = match fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_dir() => "a folder",
        Ok(kind) if kind.is_file() => "a regular file",
        Ok(kind) if kind.is_char_device() => "a device that gives no video",
        _ => "something else",
    };
    let error = Error::source_failed(format!("found {found}, expected a video device"));
    match found {
        "a folder" => error.hint(
            "pictures in a folder are read with `--source`; in a container a folder stands where the camera's node was \
             missing when the container started",
        ),
        "a regular file" => error.hint("pictures are read with `--source`"),
        _ => error.hint("name a camera by number (`0`) or by its node (`/dev/video0`)"),
    }
}

/// The device lacks what is needed to give pictures.
pub(super) fn lacks_capture(found: &Capability) -> Error {
    use capability::{
        META_CAPTURE, STREAMING, VIDEO_CAPTURE, VIDEO_CAPTURE_MPLANE, VIDEO_M2M, VIDEO_M2M_MPLANE, VIDEO_OUTPUT,
    };
    let flags = found.flags;
    let (what, hint) = if flags & VIDEO_CAPTURE != 0 && flags & STREAMING == 0 {
        ("a camera without mapped buffers", "such cameras are not supported")
    } else if flags & META_CAPTURE != 0 {
        (
            "a node with data about pictures",
            "a camera has several nodes: its pictures come from the one below, mostly one number lower",
        )
    } else if flags & VIDEO_CAPTURE_MPLANE != 0 {
        ("a multi-planar node (image processor or CSI)", "the way is the CSI source, not this node")
    } else if flags & (VIDEO_M2M | VIDEO_M2M_MPLANE) != 0 {
        ("an encoder or decoder", "name a camera's node")
    } else if flags & VIDEO_OUTPUT != 0 {
        ("a node that takes pictures", "with v4l2loopback start the program that feeds it first")
    } else {
        ("a node that gives no pictures", "a camera has several nodes: try the others")
    };
    let name = if found.card.is_empty() { &found.driver } else { &found.card };
    Error::source_failed(format!("found {what} (`{name}`), expected a camera that streams pictures")).hint(hint)
}

/// A call on the open device failed while the stream was set up.
pub(super) fn setup_failed(path: &Path, step: &str, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => {
            Error::source_failed("the USB bus has no bandwidth left for this camera's mode").because(error).hint(
                "ask for MJPG (`--pixel-format mjpg`), a smaller size or a lower rate, or plug the cameras into \
                 different USB controllers",
            )
        }
        Some(libc::EBUSY) => busy(path),
        Some(libc::ENODEV | libc::EIO | libc::ENXIO) => lost(error),
        _ => Error::source_failed(format!("the camera refuses to {step}")).because(error),
    }
}

/// The camera went away.
pub(super) fn lost(error: std::io::Error) -> Error {
    Error::source_failed("the camera is lost")
        .because(error)
        .hint("check plug, cable and power of the camera or its hub")
}

/// Another program uses the camera: names it where this user may see it.
fn busy(path: &Path) -> Error {
    let error = Error::source_failed("the camera is in use by another program");
    match holder(path) {
        Some(name) => Error::source_failed(format!("the camera is in use by {name}")).hint("stop it"),
        None => error.hint(format!("find it with `sudo fuser -v {}`, then stop it", path.display())),
    }
}

/// `name (process id)` of another process that has the node open.
fn holder(path: &Path) -> Option<String> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = std::process::id().to_string();
    for process in fs::read_dir("/proc").ok()?.filter_map(|entry| Some(entry.ok()?.path())) {
        let id = process.file_name()?.to_string_lossy().into_owned();
        if id == own || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(open_files) = fs::read_dir(process.join("fd")) else { continue };
        if open_files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).any(|file| file == target) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            return Some(format!("`{}` (process {id})", name.trim()));
        }
    }
    None
}

/// The camera that came back is not the one that was lost.
pub(super) fn another_camera(found: &str, expected: &str) -> Error {
    Error::new(ErrorKind::Source, format!("found the camera {found}, expected {expected}"))
        .hint("plug the cameras back as they were, or name them by their links in /dev/v4l/by-id or /dev/v4l/by-path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_node_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        fs::write(&file, b"x").unwrap();
        for (path, word) in [
            (folder.path(), "a folder"),
            (file.as_path(), "a regular file"),
            (Path::new("/dev/null"), "gives no video"),
        ] {
            assert!(not_a_camera(path).message().contains(word), "{}", path.display());
        }
    }

    #[test]
    fn a_program_that_holds_the_node_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("30").stdin(fs::File::open(file.path()).unwrap()).spawn().unwrap();
        let error = busy(file.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(error.message().contains(&format!("(process {})", child.id())), "{error}");
    }

    #[test]
    fn bandwidth_is_explained() {
        let error = setup_failed(Path::new("/dev/video0"), "start", std::io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(error.message().contains("bandwidth") && error.hint_text().unwrap().contains("mjpg"));
    }
}
