//! YOLO labels: one text file a picture, `class centre-x centre-y width height` a line, as shares of the picture.

use super::super::precision::usable::{Usable, UsablePicture};
use crate::build::pictures::short_name;
use crate::error::{Error, Result};
use crate::units::SizePx;
use std::path::{Path, PathBuf};

const MOST_LABEL_BYTES: u64 = 4 << 20;
/// Files with class names that exports of labelling tools put beside the labels.
const NAME_FILES: [&str; 2] = ["classes.txt", "obj.names"];

/// A true box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Truth {
    pub(super) class_id: u32,
    /// Left, top, right, bottom, px of the source picture.
    pub(super) edges_px: [f64; 4],
}

/// The true boxes of each picture, in the order of `pictures`. A picture without a file has none.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when the folder does not belong to the pictures or to the model's classes.
pub(super) fn read(folder: &Path, pictures: &Usable, classes: &[String]) -> Result<Vec<Vec<Truth>>> {
    if !folder.is_dir() {
        return Err(Error::usage("found no folder with labels")
            .at(folder.display())
            .hint("`--labels DIR` names the folder with one YOLO text file a picture"));
    }
    check_names(folder, classes)?;
    let mut all = Vec::with_capacity(pictures.len());
    let mut with_file = 0;
    for picture in &pictures.pictures {
        let path = label_path(folder, picture);
        let truth = match std::fs::metadata(&path) {
            Ok(about) if about.is_file() && about.len() <= MOST_LABEL_BYTES => {
                with_file += 1;
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| Error::usage("the labels cannot be read").because(error).at(path.display()))?;
                parse(&text, picture.size, classes).map_err(|error| error.moved_to(path.display()))?
            }
            Ok(_) => return Err(Error::usage("found no small text file with labels").at(path.display())),
            Err(_) => Vec::new(),
        };
        all.push(truth);
    }
    if with_file == 0 {
        let example = pictures.pictures.first().map_or_else(PathBuf::new, |picture| label_path(folder, picture));
        return Err(Error::usage(format!(
            "found no label file for any of {} pictures, expected `{}` and so on",
            pictures.len(),
            short_name(&example)
        ))
        .at(folder.display())
        .hint("give the labels of the pictures in `--gate`; leave `--labels` out to compare with the original alone"));
    }
    if with_file * 2 < pictures.len() {
        log::warn!(
            "{} of {} pictures have no label file and count as empty",
            pictures.len() - with_file,
            pictures.len()
        );
    }
    Ok(all)
}

fn label_path(folder: &Path, picture: &UsablePicture) -> PathBuf {
    let stem = picture.path.file_stem().unwrap_or_default().to_string_lossy();
    folder.join(format!("{stem}.txt"))
}

fn parse(text: &str, size: SizePx, classes: &[String]) -> Result<Vec<Truth>> {
    let mut truth = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let wrong = |found: String| Error::usage(format!("line {}: {found}", line + 1));
        let fields: Vec<f64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[class, x, y, width, height, ..] = fields.as_slice() else {
            return Err(wrong(format!("found `{}`, expected `class x y width height`", text.trim())));
        };
        let position = classes.iter().enumerate().zip(0_u32..).find(|(_, id)| f64::from(*id) == class);
        let Some((_, class_id)) = position else {
            return Err(wrong(format!(
                "found class {class}, expected 0 to {}: the model has {} classes",
                classes.len().saturating_sub(1),
                classes.len()
            ))
            .hint("these labels are of other classes than the model's"));
        };
        if ![x, y, width, height].iter().all(|share| (-0.5..=1.5).contains(share)) {
            return Err(wrong("found a box beyond the picture, expected shares of it from 0 to 1".to_owned()));
        }
        let (picture_width, picture_height) = (f64::from(size.width_px), f64::from(size.height_px));
        truth.push(Truth {
            class_id,
            edges_px: [
                (x - width / 2.0) * picture_width,
                (y - height / 2.0) * picture_height,
                (x + width / 2.0) * picture_width,
                (y + height / 2.0) * picture_height,
            ],
        });
    }
    Ok(truth)
}

/// Refuses a list of names beside the labels that differs from the model's.
fn check_names(folder: &Path, classes: &[String]) -> Result<()> {
    for path in NAME_FILES.iter().map(|name| folder.join(name)) {
        let small = std::fs::metadata(&path).is_ok_and(|about| about.is_file() && about.len() <= MOST_LABEL_BYTES);
        let Some(text) = small.then(|| std::fs::read_to_string(&path).ok()).flatten() else { continue };
        let names: Vec<&str> = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
        if names != classes.iter().map(String::as_str).collect::<Vec<_>>() {
            return Err(Error::usage(format!("found classes {}, expected {}", names.join(", "), classes.join(", ")))
                .at(path.display())
                .hint("the labels and the model must number the same classes in the same order"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Vec<String> {
        vec!["open".into(), "short".into()]
    }

    #[test]
    fn shares_become_pixels() {
        let truth = parse("1 0.5 0.5 0.5 0.25\n\n", SizePx::new(200, 100), &classes()).unwrap();
        assert_eq!(truth, [Truth { class_id: 1, edges_px: [50.0, 37.5, 150.0, 62.5] }]);
    }

    #[test]
    fn other_classes_and_other_formats_are_refused_with_their_line() {
        for (text, word) in
            [("0 0.5 0.5 1 1\n7 0.5 0.5 1 1", "line 2: found class 7"), ("a b", "line 1"), ("0 50 50 10 10", "beyond")]
        {
            let error = parse(text, SizePx::new(100, 100), &classes()).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_folder_of_other_labels_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let picture = UsablePicture { path: "a.jpg".into(), hash: String::new(), size: SizePx::new(10, 10) };
        let pictures = Usable { pictures: vec![picture] };
        let error = read(folder.path(), &pictures, &classes()).unwrap_err();
        assert!(error.to_string().contains("expected `a.txt`"), "{error}");
        std::fs::write(folder.path().join("a.txt"), "0 .5 .5 1 1").unwrap();
        assert_eq!(read(folder.path(), &pictures, &classes()).unwrap()[0].len(), 1);
        std::fs::write(folder.path().join("classes.txt"), "short\nopen\n").unwrap();
        assert!(read(folder.path(), &pictures, &classes()).is_err());
    }
}
