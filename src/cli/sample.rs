//! The sample bundle of the simulated line, carried inside the program so that `--source sim:` runs from any folder.

use crate::error::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

const SAMPLE: &[u8] = include_bytes!("../../engines/sample/sample.edge");

/// The sample bundle, or another one in memory, as a file that lives as long as this value.
#[derive(Debug)]
pub(super) struct SampleBundle {
    folder: PathBuf,
    file: PathBuf,
}

impl SampleBundle {
    /// Writes the bundle into a folder of its own below the folder for temporary files.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when it cannot be written.
    pub(super) fn unpack() -> Result<Self> {
        Self::unpack_below(&std::env::temp_dir(), "sample", SAMPLE)
    }

    /// Another bundle in memory as such a file; `name` tells its folder from others of this process.
    ///
    /// # Errors
    /// As [`SampleBundle::unpack`].
    pub(super) fn unpack_bytes(name: &str, bytes: &[u8]) -> Result<Self> {
        Self::unpack_below(&std::env::temp_dir(), name, bytes)
    }

    fn unpack_below(temporary: &Path, name: &str, bytes: &[u8]) -> Result<Self> {
        let folder = temporary.join(format!("edge-run-{name}-{}", std::process::id()));
        let cannot = |error: std::io::Error| {
            Error::output("a bundle cannot be unpacked")
                .because(error)
                .at(folder.display())
                .hint("set TMPDIR to a folder with 3 MB of room, or name a bundle with `--engine`")
        };
        std::fs::create_dir_all(&folder).map_err(cannot)?;
        let sample = SampleBundle { file: folder.join("sample.edge"), folder: folder.clone() };
        let mut file = std::fs::File::create(&sample.file).map_err(cannot)?;
        file.write_all(bytes).map_err(cannot)?;
        Ok(sample)
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for SampleBundle {
    fn drop(&mut self) {
        // The folder is ours alone; what cannot be removed is left to whoever cleans temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Bundle;

    #[test]
    fn the_sample_is_a_whole_bundle_and_leaves_nothing_behind() {
        let temporary = tempfile::tempdir().unwrap();
        let sample = SampleBundle::unpack_below(temporary.path(), "sample", SAMPLE).unwrap();
        assert_eq!(Bundle::open(sample.path()).unwrap().manifest().name, "sample");
        drop(sample);
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let error = SampleBundle::unpack_below(Path::new("/dev/null"), "sample", SAMPLE).unwrap_err();
        assert_eq!(error.kind().exit_code(), 11);
        assert!(error.place().unwrap().starts_with("/dev/null"));
    }
}
