//! Free space of a file system, through `statvfs`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The space of one file system, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What an ordinary user may still write.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
}

/// The space of the file system that holds `path`.
///
/// # Errors
/// Those of [`statvfs`](https://man7.org/linux/man-pages/man3/statvfs.3.html); `path` must exist.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut figures = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a C string that outlives the call, `figures` is writable memory of the size that the call fills.
    let status = unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned 0, so it has filled the structure, which was zeroed before and has no invalid bit patterns.
    let figures = unsafe { figures.assume_init() };
    let unit_bytes = figures.f_frsize;
    Ok(Space {
        free_bytes: figures.f_bavail.saturating_mul(unit_bytes),
        total_bytes: figures.f_blocks.saturating_mul(unit_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_folder_has_a_size() {
        let space = space(Path::new(".")).unwrap();
        assert!(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
        assert!(super::space(Path::new("/no/such/folder")).is_err());
        assert!(super::space(Path::new("a\0b")).is_err());
    }
}
