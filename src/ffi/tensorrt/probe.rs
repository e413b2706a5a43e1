//! Finding and opening TensorRT's libraries.
//!
//! A flavour is looked for in the folder that `--tensorrt-dir` or `EDGE_TENSORRT_DIR` names (and its `lib`); when that holds
//! none, where the loader looks. The version decides what was found, never the file name.

use super::version::{Family, Flavour, Version};
use crate::error::{Error, Result};
use libloading::os::unix::{Library as Opened, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

/// Name of the environment variable with the folder of TensorRT's libraries.
pub const DIRECTORY_VARIABLE: &str = "EDGE_TENSORRT_DIR";

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// A folder that is looked in before the loader's own paths.
    pub directory: Option<PathBuf>,
}

impl Search {
    /// The folder of a flag, else of `EDGE_TENSORRT_DIR`, else none.
    pub fn new(flag: Option<PathBuf>) -> Search {
        let variable = || std::env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Search { directory: flag.or_else(variable) }
    }

    /// Full paths of the files in the folder that are called `name` or `name.something`, shortest first.
    fn in_directory(&self, name: &str) -> Vec<PathBuf> {
        let Some(directory) = &self.directory else { return vec![] };
        let longer = format!("{name}.");
        let mut found = vec![];
        for folder in [directory.clone(), directory.join("lib")] {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            let matching = entries.flatten().map(|entry| entry.path()).filter(|path| {
                path.file_name().and_then(|file| file.to_str()).is_some_and(|file| {
                    file == name
                        || file.strip_prefix(&longer).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
                })
            });
            found.extend(matching);
        }
        found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        found
    }
}

impl Flavour {
    /// Name of the core library as the loader knows it.
    pub fn library_name(self) -> &'static str {
        match self {
            Flavour::Trt8 => "libnvinfer.so.8",
            Flavour::Trt10 => "libnvinfer.so.10",
            Flavour::Trt11 => "libnvinfer.so.11",
            Flavour::Rtx => "libtensorrt_rtx.so.1",
        }
    }

    /// Name of the ONNX parser as the loader knows it.
    pub fn parser_name(self) -> &'static str {
        match self {
            Flavour::Trt8 => "libnvonnxparser.so.8",
            Flavour::Trt10 => "libnvonnxparser.so.10",
            Flavour::Trt11 => "libnvonnxparser.so.11",
            Flavour::Rtx => "libtensorrt_onnxparser_rtx.so.1",
        }
    }

    /// What the parser or a build loads by name and finds only when it is already there or on the loader's paths.
    fn companions(self) -> &'static [&'static str] {
        match self {
            Flavour::Trt8 => &["libnvinfer_plugin.so.8", "libnvinfer_builder_resource.so.8"],
            _ => &[],
        }
    }

    fn way_out(self) -> &'static str {
        match self {
            Flavour::Trt8 => {
                "TensorRT 8 is part of JetPack 5; name its folder with `--tensorrt-dir` or `EDGE_TENSORRT_DIR`"
            }
            Flavour::Trt10 => {
                "install TensorRT 10 (JetPack 6 has it; on a PC NVIDIA's packages or `pip install tensorrt-cu12`) and name its \
                 folder with `--tensorrt-dir` or `EDGE_TENSORRT_DIR`"
            }
            Flavour::Trt11 => {
                "install TensorRT 11 with its ONNX parser and name its folder with `--tensorrt-dir` or `EDGE_TENSORRT_DIR`"
            }
            Flavour::Rtx => {
                "install TensorRT-RTX (`pip install onnxruntime-ep-nv-tensorrt-rtx-cu13` brings it) and name its folder with \
                 `--tensorrt-dir` or `EDGE_TENSORRT_DIR`"
            }
        }
    }
}

type CreateFromLogger = unsafe extern "C-unwind" fn(*mut c_void, i32) -> *mut c_void;
type CreateFromNetwork = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, i32) -> *mut c_void;

/// An opened core library.
#[derive(Debug, Clone)]
pub(super) struct Core {
    pub(super) path: PathBuf,
    pub(super) version: Version,
    pub(super) family: Family,
    /// The lean runtime has none.
    pub(super) create_builder: Option<CreateFromLogger>,
    pub(super) create_runtime: CreateFromLogger,
}

/// An opened ONNX parser.
#[derive(Debug, Clone)]
pub(super) struct ParserLibrary {
    pub(super) path: PathBuf,
    /// `NV_ONNX_PARSER_VERSION`, which its factory is told.
    pub(super) version: i32,
    pub(super) create_parser: CreateFromNetwork,
}

/// Opens the core library of a flavour.
///
/// # Errors
/// [`crate::ErrorKind::MachineLacks`]: not found (with everything tried), too old, of an unknown major version, of another
/// flavour, or not a TensorRT library at all.
pub(super) fn core(flavour: Flavour, search: &Search) -> Result<Core> {
    for companion in flavour.companions() {
        for path in search.in_directory(companion) {
            if let Err(reason) = open(&path) {
                log::debug!("{}: {reason}", path.display());
            }
        }
    }
    let (library, path) = find(flavour, flavour.library_name(), search)?;
    let place = |error: Error| error.at(path.display());
    // SAFETY: `int32_t getInferLibVersion()` in every TensorRT since 6.
    let version = unsafe { symbol::<unsafe extern "C" fn() -> i32>(library, c"getInferLibVersion") }.map_err(place)?;
    // SAFETY: the function only returns a constant; it touches neither CUDA nor state.
    let number = unsafe { version() };
    let version = Version::from_number(number)
        .ok_or_else(|| Error::machine_lacks(format!("found version number {number}, expected a TensorRT version")))
        .map_err(place)?;
    let family = Family::of(version).map_err(place)?;
    if family.flavour() != flavour {
        let (found, wanted) = (family.flavour().product(), flavour.product());
        let error = Error::machine_lacks(format!("found {found} (version {version}), expected {wanted}"));
        return Err(error.hint(flavour.way_out()).at(path.display()));
    }
    Ok(Core {
        // SAFETY: `void* createInferBuilder_INTERNAL(void* logger, int32_t version)` in every family.
        create_builder: unsafe { symbol(library, c"createInferBuilder_INTERNAL") }.ok(),
        // SAFETY: `void* createInferRuntime_INTERNAL(void* logger, int32_t version)` in every family.
        create_runtime: unsafe { symbol(library, c"createInferRuntime_INTERNAL") }.map_err(place)?,
        version,
        family,
        path,
    })
}

/// Opens the ONNX parser that belongs to a core library.
///
/// # Errors
/// [`crate::ErrorKind::MachineLacks`]: not found, or of another version than the core library.
pub(super) fn parser(core: &Core, search: &Search) -> Result<ParserLibrary> {
    let flavour = core.family.flavour();
    let beside = Search { directory: core.path.parent().map(Path::to_path_buf) };
    let (library, path) = find(flavour, flavour.parser_name(), &beside)
        .or_else(|error| find(flavour, flavour.parser_name(), search).map_err(|_| error))?;
    if let Some(version) = version_of_file(&path).filter(|&version| version != core.version) {
        return Err(Error::machine_lacks(format!(
            "found an ONNX parser of version {version}, expected {} as the library `{}`",
            core.version,
            core.path.display()
        ))
        .at(path.display())
        .hint("install the parser of the same release"));
    }
    // SAFETY: `int32_t getNvOnnxParserVersion()`; missing in none of the families.
    let version = unsafe { symbol::<unsafe extern "C" fn() -> i32>(library, c"getNvOnnxParserVersion") };
    let version = version.map_err(|error| error.at(path.display()))?;
    Ok(ParserLibrary {
        // SAFETY: the function only returns a constant.
        version: unsafe { version() },
        // SAFETY: `void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version)` in every family.
        create_parser: unsafe { symbol(library, c"createNvOnnxParser_INTERNAL") }
            .map_err(|error| error.at(path.display()))?,
        path,
    })
}

/// The version at the end of a file's real name, as in `libnvonnxparser.so.10.3.0`.
fn version_of_file(path: &Path) -> Option<Version> {
    let real = path.canonicalize().ok()?;
    let (_, digits) = real.file_name()?.to_str()?.split_once(".so.")?;
    let numbers: Vec<u16> = digits.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match numbers.as_slice() {
        &[major, minor, patch] => Some(Version { major, minor, patch }),
        _ => None,
    }
}

/// Opens the first library of that name, in the folder or on the loader's paths; never closes it.
fn find(flavour: Flavour, name: &str, search: &Search) -> Result<(&'static Opened, PathBuf)> {
    let mut tried = vec![];
    for path in search.in_directory(name) {
        match open(&path) {
            Ok(library) => return Ok((library, path)),
            Err(reason) => tried.push(format!("`{}`: {reason}", path.display())),
        }
    }
    let failed = |tried: &[String]| {
        Error::machine_lacks(format!("found no {} library, tried {}", flavour.product(), tried.join("; ")))
            .hint(flavour.way_out())
    };
    if !tried.is_empty() {
        // The folder was named on purpose: another library in its place would be a surprise.
        return Err(failed(&tried));
    }
    if let Some(directory) = &search.directory {
        tried.push(format!("`{}`: holds no `{name}`", directory.display()));
    }
    match open(Path::new(name)) {
        Ok(library) => {
            let path = loaded_path(library).unwrap_or_else(|| PathBuf::from(name));
            return Ok((library, path));
        }
        Err(reason) => tried.push(format!("`{name}` on the loader's paths: {reason}")),
    }
    Err(failed(&tried))
}

fn open(path: &Path) -> std::result::Result<&'static Opened, String> {
    // SAFETY: loading runs the library's initialisers, which have no preconditions. It is leaked: TensorRT is not made to be
    // unloaded, and function pointers of it are kept.
    match unsafe { Opened::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            use std::error::Error as _;
            Err(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        }
    }
}

/// The file that a library was loaded from.
fn loaded_path(library: &Opened) -> Option<PathBuf> {
    // SAFETY: only the address of the symbol is used, nothing is called.
    let address = unsafe { library.get::<*mut c_void>(c"getInferLibVersion".to_bytes_with_nul()) }
        .or_else(|_| {
            // SAFETY: as above.
            unsafe { library.get::<*mut c_void>(c"getNvOnnxParserVersion".to_bytes_with_nul()) }
        })
        .ok()?
        .into_raw();
    // SAFETY: all-zero is a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: writes the structure; the address need not be valid.
    let known = unsafe { libc::dladdr(address, &raw mut info) };
    if known == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string ends in 0 and lives as long as the library, which is never unloaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_str().ok()?))
}

/// Looks a function up.
///
/// # Safety
/// `F` is the type of the function pointer behind that name.
unsafe fn symbol<F: Copy>(library: &Opened, name: &CStr) -> Result<F> {
    // SAFETY: the caller vouches for the type.
    match unsafe { library.get::<F>(name.to_bytes_with_nul()) } {
        Ok(found) => Ok(*found),
        Err(_) => Err(Error::machine_lacks(format!(
            "found a library without `{}`, expected one of TensorRT's",
            name.to_string_lossy()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_reported_with_everything_tried_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libtensorrt_rtx.so.1.7.1"), b"not a library").unwrap();
        let search = Search { directory: Some(folder.path().to_path_buf()) };
        let error = core(Flavour::Rtx, &search).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::MachineLacks);
        assert!(error.message().contains("libtensorrt_rtx.so.1.7.1`: "), "{error}");
        assert!(!error.message().contains("loader's paths"), "no other library in place of a broken one: {error}");
        assert!(error.hint_text().unwrap().contains("EDGE_TENSORRT_DIR"));
        let error = core(Flavour::Trt8, &search).unwrap_err();
        assert!(error.message().contains("holds no `libnvinfer.so.8`"), "{error}");
        assert!(error.message().contains("`libnvinfer.so.8` on the loader's paths"), "{error}");
    }

    #[test]
    fn a_library_that_is_not_tensorrt_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvinfer.so.10");
        let libc = loaded_libc();
        std::fs::copy(libc, &path).unwrap();
        let error = core(Flavour::Trt10, &Search { directory: Some(folder.path().to_path_buf()) }).unwrap_err();
        assert!(error.message().contains("without `getInferLibVersion`"), "{error}");
        assert_eq!(error.place(), Some(path.to_str().unwrap()));
    }

    fn loaded_libc() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("libm.so") || line.contains("libgcc_s.so")).unwrap();
        PathBuf::from(line.split_whitespace().last().unwrap())
    }

    #[test]
    fn the_version_in_a_real_file_name_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("libnvonnxparser.so.10.3.0");
        std::fs::write(&real, b"").unwrap();
        let link = folder.path().join("libnvonnxparser.so.10");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(version_of_file(&link), Some(Version { major: 10, minor: 3, patch: 0 }));
        std::fs::write(folder.path().join("libother.so.10"), b"").unwrap();
        assert_eq!(version_of_file(&folder.path().join("libother.so.10")), None);
    }
}
