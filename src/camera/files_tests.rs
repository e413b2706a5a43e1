use crate::ErrorKind;
use crate::camera::{Camera, Capture, SourceKind, SourceSpec, open};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

fn folder(pictures: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (index, name) in pictures.iter().enumerate() {
        write_png(&folder.path().join(name), u8::try_from(index).unwrap());
    }
    folder
}

fn write_png(path: &Path, value: u8) {
    image::GrayImage::from_pixel(8, 6, image::Luma([value])).save_with_format(path, image::ImageFormat::Png).unwrap();
}

fn open_text(text: &str) -> crate::Result<Box<dyn Camera>> {
    open(&SourceSpec::parse(text).unwrap(), "cam".into())
}

/// (number, source, first pixel or `None` for an unreadable one) until the end, at most `limit`.
fn all(camera: &mut dyn Camera, limit: usize) -> Vec<(u64, String, Option<u8>)> {
    let mut seen = Vec::new();
    while seen.len() < limit {
        match camera.next(PATIENCE).unwrap() {
            Capture::Frame(frame) => {
                let value = frame.picture.pixels.as_slice()[0];
                seen.push((frame.number, frame.source.clone().unwrap().to_string(), Some(value)));
            }
            Capture::Unreadable { number, source, why, .. } => {
                assert!(!why.is_empty() && !why.contains('\n'));
                seen.push((number, source.unwrap().to_string(), None));
            }
            Capture::Nothing => {}
            Capture::End => break,
        }
    }
    seen
}

#[test]
fn a_folder_comes_whole_in_order_and_unreadable_pictures_are_said() {
    let folder = folder(&["b.png", "a.PNG", "c.bmp"]);
    std::fs::write(folder.path().join("aa.jpg"), b"").unwrap();
    std::fs::write(folder.path().join("labels.txt"), b"x").unwrap();
    std::fs::write(folder.path().join(".hidden.png"), b"x").unwrap();
    std::fs::create_dir(folder.path().join("sub.png")).unwrap();
    let mut camera = open_text(&folder.path().display().to_string()).unwrap();
    let info = camera.info();
    assert_eq!((info.kind, info.related_frames, info.frames), (SourceKind::Files, false, Some(4)));
    let seen = all(camera.as_mut(), 99);
    let expected = [(0, "a.PNG", Some(1)), (1, "aa.jpg", None), (2, "b.png", Some(0)), (3, "c.bmp", Some(2))];
    assert_eq!(seen, expected.map(|(number, name, value)| (number, name.to_owned(), value)));
    assert!(matches!(camera.next(PATIENCE).unwrap(), Capture::End));
}

#[test]
fn a_picture_and_a_pattern() {
    let folder = folder(&["x1.png", "x2.png", "y.png"]);
    let path = folder.path().display();
    assert_eq!(all(open_text(&format!("{path}/x2.png")).unwrap().as_mut(), 9), [(0, "x2.png".to_owned(), Some(1))]);
    let seen = all(open_text(&format!("{path}/x*.png")).unwrap().as_mut(), 9);
    assert_eq!(seen.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>(), ["x1.png", "x2.png"]);
}

#[test]
fn what_cannot_be_opened_is_one_source_error() {
    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("a.txt"), b"x").unwrap();
    let path = empty.path().display().to_string();
    for text in [
        format!("{path}/missing"),
        format!("{path}/missing.png"),
        format!("{path}/*.png"),
        format!("replay:{path}/missing"),
        format!("replay:{path}"),
        path,
    ] {
        let Err(error) = open_text(&text) else { panic!("{text} opened") };
        assert_eq!(error.kind(), ErrorKind::Source, "{text}: {error}");
        assert!(error.place().is_some(), "{text}");
    }
}

#[test]
fn replay_is_paced_endless_and_shuffled_by_seed() {
    let folder = folder(&["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "6.png", "7.png"]);
    let path = folder.path().display();
    let order = |seed: u64, rounds: usize| {
        let mut camera = open_text(&format!("replay:{path}?loop&shuffle={seed}&fps=1000")).unwrap();
        assert_eq!(camera.info().frames, None);
        all(camera.as_mut(), 8 * rounds).into_iter().map(|(_, name, _)| name).collect::<Vec<_>>()
    };
    let first = order(7, 2);
    assert_eq!(first, order(7, 2));
    assert_ne!(first, order(8, 2));
    assert_ne!(first[..8], first[8..]);
    let mut sorted = first[8..].to_vec();
    sorted.sort();
    assert_eq!(sorted[7], "7.png");

    let started = std::time::Instant::now();
    let mut camera = open_text(&format!("replay:{path}?fps=50")).unwrap();
    assert!(matches!(camera.next(Duration::ZERO).unwrap(), Capture::Frame(_)));
    assert!(matches!(camera.next(Duration::ZERO).unwrap(), Capture::Nothing));
    assert_eq!(all(camera.as_mut(), 99).len(), 7);
    assert!(started.elapsed() >= Duration::from_millis(135), "{:?}", started.elapsed());
    assert_eq!((camera.info().kind, camera.info().related_frames), (SourceKind::Live, false));
}

#[test]
fn live_stand_ins_carry_the_time_and_files_do_not() {
    let folder = folder(&["0.png"]);
    let path = folder.path().display();
    for (text, timed) in [(format!("replay:{path}"), true), (format!("{path}"), false)] {
        let Capture::Frame(frame) = open_text(&text).unwrap().next(PATIENCE).unwrap() else { panic!("no frame") };
        assert_eq!(frame.captured_at.is_some(), timed, "{text}");
    }
}
