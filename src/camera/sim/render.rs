//! `edge-run sim render`: pictures with labels, to learn from or to look at.

use super::line::Line;
use super::options::SimOptions;
use super::truth::{CLASSES, FrameTruth};
use crate::error::{Error, Result};
use crate::units::SizePx;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use std::fmt::Write;
use std::path::Path;

/// Labels leave out what is visible to less than this share.
const LABEL_FROM: f32 = 0.25;

/// Frames that the line usually moves on between two rendered pictures, so that every part is seen about twice.
pub const RENDER_STRIDE: u64 = 37;

/// What a rendered folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendered {
    /// Pictures written.
    pub pictures: u64,
    /// Labels written over all pictures.
    pub boxes: u64,
}

/// Writes `frames` pictures to `folder/images/000000.png`, their labels to `folder/labels/000000.txt` (YOLO: class id,
/// centre x, centre y, width, height as shares of the picture), the truth to `folder/truth.jsonl` and the class names to
/// `folder/classes.txt`. Between two pictures the line moves on by `stride` frames, so that parts differ.
/// `progress` is told the number of pictures done.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when the folder cannot be written, [`crate::ErrorKind::Usage`] for options that do not
/// go together.
pub fn render(
    folder: &Path,
    options: &SimOptions,
    frames: u64,
    stride: u64,
    mut progress: impl FnMut(u64),
) -> Result<Rendered> {
    if stride == 0 {
        return Err(Error::usage("found stride 0, expected at least 1"));
    }
    let mut line = Line::new(options)?;
    let (images, labels) = (folder.join("images"), folder.join("labels"));
    for path in [&images, &labels] {
        std::fs::create_dir_all(path).map_err(|error| unwritable(path, error))?;
    }
    let names = folder.join("classes.txt");
    std::fs::write(&names, CLASSES.join("\n") + "\n").map_err(|error| unwritable(&names, error))?;
    let mut truth_file = super::TruthWriter::create(&folder.join("truth.jsonl"))?;
    let mut pixels = vec![0; line.picture_bytes()];
    let mut rendered = Rendered { pictures: 0, boxes: 0 };
    for number in 0..frames {
        let mut truth = line.advance();
        for _ in 1..stride {
            truth = line.advance();
        }
        truth.frame = number;
        line.picture(&mut pixels);
        let image = images.join(format!("{number:06}.png"));
        write_png(&image, &pixels, options.size)?;
        let label = labels.join(format!("{number:06}.txt"));
        let text = label_lines(&truth, options.size);
        rendered.boxes += text.lines().count() as u64;
        std::fs::write(&label, text).map_err(|error| unwritable(&label, error))?;
        truth_file.put(&truth)?;
        rendered.pictures += 1;
        progress(rendered.pictures);
    }
    truth_file.flush()?;
    Ok(rendered)
}

fn label_lines(truth: &FrameTruth, size: SizePx) -> String {
    let (width_px, height_px) = (size.width_px as f32, size.height_px as f32);
    let mut text = String::new();
    for seen in truth.boxes.iter().filter(|seen| seen.visible >= LABEL_FROM) {
        let edges = seen.edges;
        let _ = writeln!(
            text,
            "{} {:.6} {:.6} {:.6} {:.6}",
            seen.class_id,
            (edges.left_px + edges.right_px) / 2.0 / width_px,
            (edges.top_px + edges.bottom_px) / 2.0 / height_px,
            edges.width_px() / width_px,
            edges.height_px() / height_px,
        );
    }
    text
}

fn write_png(path: &Path, pixels: &[u8], size: SizePx) -> Result<()> {
    let mut bytes = Vec::with_capacity(pixels.len() / 2);
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Sub)
        .write_image(pixels, size.width_px, size.height_px, ExtendedColorType::Rgb8)
        .map_err(|error| Error::unexpected("the picture cannot be encoded").because(error).at(path.display()))?;
    std::fs::write(path, bytes).map_err(|error| unwritable(path, error))
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::output("the rendered set cannot be written, expected a writable folder").because(error).at(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_folder_holds_pictures_labels_and_truth() {
        let folder = tempfile::tempdir().unwrap();
        let options = SimOptions::parse("sim:?seed=5&size=320x192&script=training").unwrap();
        let rendered = render(folder.path(), &options, 6, 11, |_| {}).unwrap();
        assert_eq!(rendered.pictures, 6);
        let picture = image::open(folder.path().join("images/000005.png")).unwrap();
        assert_eq!((picture.width(), picture.height()), (320, 192));
        let mut boxes = 0;
        for number in 0..6 {
            let text = std::fs::read_to_string(folder.path().join(format!("labels/{number:06}.txt"))).unwrap();
            for line in text.lines() {
                let values: Vec<f32> = line.split(' ').map(|value| value.parse().unwrap()).collect();
                assert!(values.len() == 5 && values[0] < 7.0, "{line}");
                assert!(values[1..].iter().all(|value| (0.0..=1.0).contains(value)), "{line}");
                boxes += 1;
            }
        }
        assert_eq!(boxes, rendered.boxes);
        assert!(boxes > 0);
        let truth = std::fs::read_to_string(folder.path().join("truth.jsonl")).unwrap();
        let last: FrameTruth = serde_json::from_str(truth.lines().last().unwrap()).unwrap();
        assert_eq!((truth.lines().count(), last.frame), (6, 5));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_output_error() {
        let options = SimOptions::default();
        let error = render(Path::new("/dev/null/here"), &options, 1, 1, |_| {}).unwrap_err();
        assert_eq!(error.kind().exit_code(), 11);
    }
}
