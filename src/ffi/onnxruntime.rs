//! Looks at an ONNX Runtime library before `ort` touches it: `ort` aborts on a library that only looks like one.

use libloading::Library;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

/// A library that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the loader found it, absolute.
    pub path: PathBuf,
    /// Its own version, as in `1.32.0`.
    pub version: String,
}

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeError {
    /// The loader did not open it; its own words.
    NotOpened(String),
    /// It is no ONNX Runtime, or a damaged one.
    Broken(String),
    /// It is older than what this program was made for.
    TooOld {
        /// Its version.
        version: String,
        /// The oldest version that works, as in `1.24`.
        needed: String,
    },
}

impl std::fmt::Display for ProbeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProbeError::NotOpened(reason) | ProbeError::Broken(reason) => f.write_str(reason),
            ProbeError::TooOld { version, needed } => write!(f, "found version {version}, expected {needed} or newer"),
        }
    }
}

/// Opens `library` (a path, or a bare name for the loader's search), asks for its version and for the interface this
/// program speaks, and closes it again.
///
/// # Errors
/// [`ProbeError`], with the reason.
pub fn probe(library: &Path) -> Result<Found, ProbeError> {
    let named = library.display();
    // SAFETY: opening a library runs its initialisers. The caller passes only what the operator named or the loader's own
    // search finds, which the operator trusts as much as this program.
    let opened = unsafe { Library::new(library) }.map_err(|error| {
        let loader = std::error::Error::source(&error).map(ToString::to_string);
        ProbeError::NotOpened(loader.unwrap_or_else(|| error.to_string()))
    })?;
    type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    // SAFETY: the type is that of `OrtGetApiBase` in onnxruntime_c_api.h, unchanged since version 1.0.
    let get_base = unsafe { opened.get::<GetApiBase>(b"OrtGetApiBase\0") }
        .map_err(|_| ProbeError::Broken(format!("`{named}` has no `OrtGetApiBase`: it is no ONNX Runtime")))?;
    // SAFETY: the function takes nothing and returns a table that lives as long as the library, which is still open.
    let base = unsafe { get_base() };
    // SAFETY: null was ruled out by `as_ref`; otherwise the pointer is the static table described above.
    let base =
        unsafe { base.as_ref() }.ok_or_else(|| ProbeError::Broken(format!("`{named}` returned no interface")))?;
    // SAFETY: the table's second entry takes nothing and returns a static C string.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err(ProbeError::Broken(format!("`{named}` returned no version")));
    }
    // SAFETY: not null (checked above), and NUL-terminated by the header's contract; copied before the library closes.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
    // SAFETY: asking for an interface number is allowed for any number; an unknown one gives null.
    let api = unsafe { (base.GetApi)(ort::MINOR_VERSION) };
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if api.is_null() || minor.is_none_or(|minor| minor < ort::MINOR_VERSION) {
        return Err(ProbeError::TooOld { version, needed: format!("1.{}", ort::MINOR_VERSION) });
    }
    let path = path_of(std::ptr::from_ref(base).cast()).unwrap_or_else(|| library.to_owned());
    Ok(Found { path: path.canonicalize().unwrap_or(path), version })
}

/// The file from which the loader mapped `address`.
fn path_of(address: *const c_void) -> Option<PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts any address and writes only to `found`, which is large enough by its type.
    let known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeroed memory is a valid `Dl_info` (pointers and integers), whether `dladdr` wrote to it or not.
    let found = unsafe { found.assume_init() };
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: on success `dli_fname` is a C string of the loader that lives while the library is open; the caller holds it.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_gives_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libonnxruntime.so");
        std::fs::write(&text, b"not a library").unwrap();
        assert!(matches!(probe(&text), Err(ProbeError::NotOpened(_))));
        let Err(ProbeError::NotOpened(reason)) = probe(Path::new("libno_such_thing.so")) else { panic!() };
        assert!(reason.contains("No such file"), "{reason}");
    }

    #[test]
    fn another_library_is_no_onnx_runtime() {
        match probe(Path::new("libc.so.6")) {
            Err(ProbeError::Broken(reason)) => assert!(reason.contains("OrtGetApiBase"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}
