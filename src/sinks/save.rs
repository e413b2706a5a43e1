//! Annotated pictures (`--save DIR`): boxes, class, score, trust and decision drawn on each frame, in a thread of its own.

use super::Sink;
use super::draw::{Banner, Canvas, Drawing};
use super::json::cannot_write;
use super::row::Row;
use super::space::{Room, SpaceWatch};
use crate::error::{Error, Result};
use crate::frame::{Frame, StreamName};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::count32;
use image::ExtendedColorType;
use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// File format of saved pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaveFormat {
    /// JPEG of quality 90.
    #[default]
    Jpeg,
    /// PNG.
    Png,
}

/// How pictures are saved.
#[derive(Debug, Clone, Copy)]
pub struct SaveOptions {
    /// File format.
    pub format: SaveFormat,
    /// For files as source: every picture is saved, the run waits for the disk, and a disk that cannot take one is an
    /// error. For live sources (`false`): what the disk cannot take in time is dropped and counted.
    pub every: bool,
}

/// Pictures waiting to be saved.
const QUEUE: usize = 8;
const JPEG_QUALITY: u8 = 90;

/// The sink for annotated pictures: `DIR/STREAM/…`, one file a row that has a picture.
pub struct AnnotatedPictures {
    options: SaveOptions,
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<Error>>>,
    telemetry: Arc<Telemetry>,
}

struct Job {
    frame: Arc<Frame>,
    drawing: Drawing,
}

impl AnnotatedPictures {
    /// Saves into `folder`, which is made when it is missing.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the folder cannot be made or written to.
    pub fn open(folder: &Path, options: SaveOptions, telemetry: Arc<Telemetry>) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|why| cannot_write(folder, why))?;
        let probe = folder.join(format!(".{}.part", std::process::id()));
        File::create(&probe).map_err(|why| cannot_write(folder, why))?;
        let _ = std::fs::remove_file(&probe);
        let (queue, jobs) = sync_channel(QUEUE);
        let failure = Arc::new(Mutex::new(None));
        let saver = Saver {
            folder: folder.to_path_buf(),
            options,
            space: SpaceWatch::new(folder),
            canvas: Canvas::default(),
            bytes: Vec::new(),
            telemetry: Arc::clone(&telemetry),
            complained: false,
        };
        let kept = Arc::clone(&failure);
        let thread = std::thread::Builder::new()
            .name("save".to_owned())
            .spawn(move || saver.run(jobs, &kept))
            .map_err(|why| Error::unexpected("the thread for pictures does not start").because(why))?;
        Ok(AnnotatedPictures { options, queue: Some(queue), thread: Some(thread), failure, telemetry })
    }

    fn failed(&self) -> Result<()> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn dropped(&self, stream: &StreamName, reason: &'static str) {
        self.telemetry.count(Metric::PicturesDropped, Labels::stream(stream).because(reason));
    }

    fn join(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Sink for AnnotatedPictures {
    fn put(&mut self, row: &Row) -> Result<()> {
        self.failed()?;
        let (Some(frame), Some(queue)) = (&row.frame, &self.queue) else { return Ok(()) };
        let job = Job { frame: Arc::clone(frame), drawing: drawing(row) };
        if self.options.every {
            if queue.send(job).is_err() {
                self.failed()?;
                return Err(Error::output("the thread for pictures has ended"));
            }
            return Ok(());
        }
        match queue.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.dropped(&row.stream, "queue_full"),
            Err(TrySendError::Disconnected(_)) => self.dropped(&row.stream, "write_error"),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.failed()
    }

    fn finish(&mut self) -> Result<()> {
        self.join();
        self.failed()
    }
}

impl Drop for AnnotatedPictures {
    fn drop(&mut self) {
        self.join();
    }
}

fn drawing(row: &Row) -> Drawing {
    let mut text = row.trust.name().to_owned();
    for reason in &row.reasons {
        text.push(' ');
        text.push_str(reason.name());
    }
    if let Some(part) = &row.part {
        text.push_str("  part ");
        text.push_str(part);
    }
    text.push_str(&format!("  {}", row.stream));
    if let Some(number) = row.number {
        text.push_str(&format!(" #{number}"));
    }
    Drawing {
        detections: row.usable_detections().unwrap_or_default().to_vec(),
        classes: Arc::clone(&row.engine.classes),
        banner: Some(Banner { trust: row.trust, decision: row.decision, text }),
    }
}

struct Saver {
    folder: PathBuf,
    options: SaveOptions,
    space: SpaceWatch,
    canvas: Canvas,
    bytes: Vec<u8>,
    telemetry: Arc<Telemetry>,
    complained: bool,
}

impl Saver {
    fn run(mut self, jobs: Receiver<Job>, failure: &Mutex<Option<Error>>) {
        for job in jobs {
            let stream = Labels::stream(&job.frame.stream);
            if !self.options.every && self.space.room() == Room::Low {
                self.telemetry.count(Metric::PicturesDropped, stream.because("low_space"));
                continue;
            }
            match self.save(&job) {
                Ok(()) => self.telemetry.count(Metric::PicturesSaved, stream),
                Err(why) if self.options.every => {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    return;
                }
                Err(why) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        log::error!("a picture is not saved: {why}");
                    }
                    self.telemetry.count(Metric::PicturesDropped, stream.because("write_error"));
                }
            }
        }
    }

    fn save(&mut self, job: &Job) -> Result<()> {
        let widest = usize::MAX;
        self.canvas.paint(&job.frame.picture, &job.drawing, widest)?;
        self.encode()?;
        let folder = self.folder.join(plain_name(&job.frame.stream));
        let path = folder.join(file_name(&job.frame, self.options.format));
        let aside = folder.join(format!(".{}.part", std::process::id()));
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| File::create(&aside))
            .and_then(|mut file| file.write_all(&self.bytes))
            .and_then(|()| std::fs::rename(&aside, &path));
        written.map_err(|why| {
            let _ = std::fs::remove_file(&aside);
            if matches!(why.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                self.space.is_full();
            }
            cannot_write(&path, why)
        })
    }

    fn encode(&mut self) -> Result<()> {
        match self.options.format {
            SaveFormat::Jpeg => self.bytes = self.canvas.jpeg(JPEG_QUALITY)?,
            SaveFormat::Png => {
                self.bytes.clear();
                let (width_px, height_px) = (count32(self.canvas.width_px()), count32(self.canvas.height_px()));
                PngEncoder::new(&mut self.bytes)
                    .write_image(self.canvas.rgb(), width_px, height_px, ExtendedColorType::Rgb8)
                    .map_err(|why| Error::unexpected("the picture cannot be encoded as PNG").because(why))?;
            }
        }
        Ok(())
    }
}

/// `000123_board7.jpg` for files, `20260101T000000.000Z_000123.jpg` for cameras: in order, and never twice.
fn file_name(frame: &Frame, format: SaveFormat) -> String {
    let ending = match format {
        SaveFormat::Jpeg => "jpg",
        SaveFormat::Png => "png",
    };
    let time = frame.captured_at.and_then(compact_time);
    let stem = frame.source.as_deref().and_then(|source| Path::new(source).file_stem()?.to_str()).map(plain_name);
    match (time, stem) {
        (Some(time), _) => format!("{time}_{:06}.{ending}", frame.number),
        (None, Some(stem)) => format!("{:06}_{stem}.{ending}", frame.number),
        (None, None) => format!("{:06}.{ending}", frame.number),
    }
}

fn compact_time(time: SystemTime) -> Option<String> {
    let mut text = Vec::new();
    super::row::write_time(time, &mut text).then_some(())?;
    Some(String::from_utf8_lossy(&text).replace(['-', ':'], ""))
}

/// A name that is safe as a file name anywhere: letters, digits, `.`, `-`, `_`; at most 80 of them, never hidden.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '_' };
    let text: String = name.chars().map(plain).take(80).collect();
    match text.trim_start_matches('.') {
        "" => "_".to_owned(),
        rest => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Picture;
    use crate::guard::Trust;
    use crate::sinks::row::tests::row;
    use crate::units::SizePx;
    use std::time::Instant;

    fn with_frame(number: u64, source: Option<&str>, captured_at: Option<SystemTime>) -> Row {
        let size = SizePx::new(320, 240);
        let frame = Frame {
            stream: "cam/0".into(),
            number,
            captured_at,
            arrived: Instant::now(),
            source: source.map(Into::into),
            part: None,
            picture: Picture::rgb(size, vec![60; size.pixels() * 3]),
        };
        Row { stream: "cam/0".into(), number: Some(number), frame: Some(Arc::new(frame)), ..row() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_picture_of_a_folder_is_saved_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::new();
        let options = SaveOptions { format: SaveFormat::Png, every: true };
        let mut sink = AnnotatedPictures::open(&folder.path().join("new"), options, Arc::clone(&telemetry)).unwrap();
        for number in 0..20 {
            sink.put(&with_frame(number, Some("parts/a b.jpeg"), None)).unwrap();
        }
        sink.put(&row()).unwrap();
        sink.finish().unwrap();
        let saved = folder.path().join("new/cam_0");
        let found = names(&saved);
        assert_eq!(found.len(), 20);
        assert_eq!(found[3], "000003_a_b.png");
        let read = image::open(saved.join(&found[3])).unwrap().to_rgb8();
        assert_eq!((read.width(), read.height()), (320, 255));
        assert_eq!(read.get_pixel(100, 100).0, [60, 60, 60]);
        assert_eq!(telemetry.total(Metric::PicturesSaved, Labels::NONE), 20);
    }

    #[test]
    fn live_pictures_are_saved_or_counted() {
        let folder = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::new();
        let options = SaveOptions { format: SaveFormat::Jpeg, every: false };
        let mut sink = AnnotatedPictures::open(folder.path(), options, Arc::clone(&telemetry)).unwrap();
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_767_225_600);
        for number in 0..100 {
            sink.put(&with_frame(number, None, Some(at))).unwrap();
        }
        sink.finish().unwrap();
        let saved = telemetry.total(Metric::PicturesSaved, Labels::NONE);
        let dropped = telemetry.total(Metric::PicturesDropped, Labels::NONE);
        assert_eq!(saved + dropped, 100);
        let found = names(&folder.path().join("cam_0"));
        assert_eq!(found.len(), usize::try_from(saved).unwrap());
        assert_eq!(found[0], "20260101T000000.000Z_000000.jpg");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_output_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let options = SaveOptions { format: SaveFormat::Jpeg, every: true };
        let error = AnnotatedPictures::open(&file, options, Telemetry::new()).err().unwrap();
        assert_eq!(error.kind(), crate::ErrorKind::Output, "{error}");
        let mut sink = AnnotatedPictures::open(&folder.path().join("gone"), options, Telemetry::new()).unwrap();
        std::fs::remove_dir_all(folder.path().join("gone")).unwrap();
        std::fs::write(folder.path().join("gone"), "").unwrap();
        let outcome = (0..50).try_for_each(|number| sink.put(&with_frame(number, None, None))).and(sink.finish());
        assert_eq!(outcome.unwrap_err().kind(), crate::ErrorKind::Output);
    }

    #[test]
    fn a_fault_shows_no_boxes() {
        let fault = Row { trust: Trust::Fault, ..with_frame(0, None, None) };
        assert!(drawing(&fault).detections.is_empty());
        assert_eq!(drawing(&with_frame(0, None, None)).detections.len(), 1);
    }

    #[test]
    fn names_never_leave_the_folder() {
        for (name, expected) in
            [("../../etc", "_.._etc"), ("..", "_"), ("", "_"), ("a/b\\c\0", "a_b_c_"), ("图-1", "图-1")]
        {
            assert_eq!(plain_name(name), expected, "{name}");
        }
    }
}
