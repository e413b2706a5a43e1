//! Folders of pictures for calibration and known answers.

use crate::bundle::RunningHash;
use crate::camera::pictures;
use crate::error::{Error, Result};
use crate::frame::Picture;
use crate::units::index;
use std::path::{Path, PathBuf};

/// Files that are taken for pictures, by extension in lower case.
const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp", "gif"];

/// The picture files of one folder, by name.
#[derive(Debug, Clone)]
pub(super) struct PictureFolder {
    /// The folder.
    pub(super) folder: PathBuf,
    /// Files in it, by name.
    pub(super) files: Vec<PathBuf>,
}

impl PictureFolder {
    /// Lists the pictures of `folder`; folders in it are not entered.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when it cannot be read or holds no picture file.
    pub(super) fn list(folder: &Path) -> Result<PictureFolder> {
        let failed = |error: std::io::Error| {
            Error::source_failed("the folder of pictures cannot be read")
                .because(error)
                .at(folder.display())
                .hint("give a folder with JPEG, PNG, BMP or TIFF pictures")
        };
        let mut files = Vec::new();
        let mut other = 0;
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
            let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
            if !hidden && extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
                files.push(path);
            } else {
                other += 1;
            }
        }
        if files.is_empty() {
            return Err(Error::source_failed(format!("found no picture among {other} entries, expected at least one"))
                .at(folder.display())
                .hint("give the folder that holds the picture files themselves; folders in it are not entered"));
        }
        files.sort();
        Ok(PictureFolder { folder: folder.to_owned(), files })
    }
}

/// File name without folder.
pub(super) fn short_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Decodes one picture file.
pub(super) fn decode(path: &Path) -> Result<Picture> {
    pictures::decode(path)
}

/// SHA-256 over size and pixels: equal pictures are equal whatever their files are called.
pub(super) fn pixel_hash(picture: &Picture) -> String {
    let mut running = RunningHash::default();
    running.update(&picture.size.width_px.to_le_bytes());
    running.update(&picture.size.height_px.to_le_bytes());
    let row_bytes = picture.format.row_bytes(picture.size.width_px);
    for row in picture.pixels.as_slice().chunks(picture.stride_bytes.max(1)).take(index(picture.size.height_px)) {
        running.update(&row[..row_bytes.min(row.len())]);
    }
    running.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SizePx;

    #[test]
    fn only_pictures_are_listed_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = PictureFolder::list(folder.path()).unwrap_err();
        assert!(error.to_string().contains("found no picture among 0 entries"), "{error}");
        for name in ["b.PNG", "a.jpg", ".hidden.jpg", "labels.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = PictureFolder::list(folder.path()).unwrap();
        assert_eq!(found.files.iter().map(|path| short_name(path)).collect::<Vec<_>>(), ["a.jpg", "b.PNG"]);
        assert!(PictureFolder::list(&folder.path().join("missing")).is_err());
        assert!(PictureFolder::list(&folder.path().join("a.jpg")).is_err());
    }

    #[test]
    fn the_hash_is_that_of_the_pixels() {
        let picture = |byte| Picture::rgb(SizePx::new(2, 2), vec![byte; 12]);
        assert_eq!(pixel_hash(&picture(1)), pixel_hash(&picture(1)));
        assert_ne!(pixel_hash(&picture(1)), pixel_hash(&picture(2)));
        let wide = Picture::rgb(SizePx::new(4, 1), vec![1; 12]);
        assert_ne!(pixel_hash(&picture(1)), pixel_hash(&wide));
    }
}
