//! Pictures for calibration and gate: readable ones that show something, each once.

use crate::build::calibrate::one_line;
use crate::build::pictures::{PictureFolder, decode, pixel_hash, short_name};
use crate::build::watcher::Watcher;
use crate::bundle::sha256;
use crate::error::{Error, Result};
use crate::frame::Picture;
use crate::guard::picture::PictureStats;
use crate::units::{SizePx, count};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Fewer calibration pictures than this are used with a warning.
const FEW: usize = 20;

/// One picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UsablePicture {
    /// The file.
    pub(crate) path: PathBuf,
    /// SHA-256 over size and pixels.
    pub(crate) hash: String,
    /// Its size, px.
    pub(crate) size: SizePx,
}

/// The usable pictures of a folder, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Usable {
    pub(crate) pictures: Vec<UsablePicture>,
}

impl Usable {
    /// Where the pictures lie.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.pictures.iter().map(|picture| picture.path.clone()).collect()
    }

    /// Lists what can be used in `folder`; what cannot is named in a warning.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when nothing can be used.
    pub(crate) fn of(folder: &Path, watcher: &mut dyn Watcher) -> Result<Usable> {
        let listed = PictureFolder::list(folder)?;
        let mut pictures = Vec::new();
        let mut seen = HashSet::new();
        let (mut unreadable, mut blank) = (0, 0);
        for path in &listed.files {
            watcher.check_stop()?;
            let picture = match decode(path) {
                Ok(picture) => picture,
                Err(error) => {
                    unreadable += 1;
                    watcher.warn(&format!("left out `{}`: {}", short_name(path), one_line(&error)));
                    continue;
                }
            };
            if PictureStats::measure(&picture).contrast < 1.0 {
                blank += 1;
                watcher.warn(&format!("left out `{}`: it shows one colour only", short_name(path)));
                continue;
            }
            let hash = pixel_hash(&picture);
            if seen.insert(hash.clone()) {
                pictures.push(UsablePicture { path: path.clone(), hash, size: picture.size });
            }
        }
        if pictures.is_empty() {
            return Err(Error::source_failed(format!(
                "found no usable picture among {} files ({unreadable} cannot be read, {blank} show one colour only), expected some that \
                 look like the line's",
                listed.files.len()
            ))
            .at(folder.display()));
        }
        Ok(Usable { pictures })
    }

    /// Number of pictures.
    pub(crate) fn len(&self) -> usize {
        self.pictures.len()
    }

    /// Decodes picture `at`.
    pub(crate) fn decode(&self, at: usize) -> Result<Picture> {
        match self.pictures.get(at) {
            Some(picture) => decode(&picture.path),
            None => Err(Error::unexpected(format!("found no picture {at}, expected {} pictures", self.len()))),
        }
    }

    /// Warns when there are too few to trust the ranges.
    pub(crate) fn warn_if_few(&self, watcher: &mut dyn Watcher) {
        if self.len() < FEW {
            watcher.warn(&format!(
                "ranges come from {} pictures; give at least {FEW} that show what the line sees",
                self.len()
            ));
        }
    }

    /// Two halves by content: the same pictures fall into the same half whatever their files are called.
    pub(crate) fn halves(self) -> (Usable, Usable) {
        let mut sorted = self.pictures;
        sorted.sort_by(|one, other| one.hash.cmp(&other.hash));
        let (mut first, mut second) = (Usable::default(), Usable::default());
        for (at, picture) in sorted.into_iter().enumerate() {
            if at % 2 == 0 { &mut first } else { &mut second }.pictures.push(picture);
        }
        for half in [&mut first, &mut second] {
            half.pictures.sort_by(|one, other| one.path.cmp(&other.path));
        }
        (first, second)
    }

    /// Removes pictures that `other` holds as well; gives their number.
    pub(crate) fn remove_shared(&mut self, other: &Usable) -> usize {
        let hashes: HashSet<&str> = other.pictures.iter().map(|picture| picture.hash.as_str()).collect();
        let before = self.len();
        self.pictures.retain(|picture| !hashes.contains(picture.hash.as_str()));
        before - self.len()
    }

    /// Every `n`-th picture, so that at most `most` are left.
    pub(crate) fn thinned(&self, most: usize) -> Usable {
        let step = self.len().div_ceil(most.max(1)).max(1);
        Usable { pictures: self.pictures.iter().step_by(step).cloned().collect() }
    }

    /// SHA-256 over the hashes of all pictures, sorted.
    pub(crate) fn set_hash(&self) -> String {
        let mut hashes: Vec<&str> = self.pictures.iter().map(|picture| picture.hash.as_str()).collect();
        hashes.sort_unstable();
        debug_assert_eq!(count(hashes.len()), count(self.len()));
        sha256(hashes.concat().as_bytes())
    }
}
