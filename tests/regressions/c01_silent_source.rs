//! C01: a source that goes quiet, sends halves or stops must be lost, never replaced by an old or empty picture.

use edge_trt::camera::{Camera, CameraRequest, Capture, SourceSpec, open};
use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn jpeg(value: u8) -> Vec<u8> {
    let picture = image::RgbImage::from_fn(64, 48, |x, _| image::Rgb([value, u8::try_from(x * 4).unwrap(), 90]));
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
    bytes.into_inner()
}

/// Serves one connection with `serve` and gives the address.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/video", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        serve(stream);
    });
    address
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n";

fn counted(bytes: &[u8]) -> Vec<u8> {
    let mut part =
        format!("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", bytes.len()).into_bytes();
    part.extend_from_slice(bytes);
    part.extend_from_slice(b"\r\n");
    part
}

fn uncounted(bytes: &[u8]) -> Vec<u8> {
    let mut part = b"--frame\r\nContent-Type: image/jpeg\r\n\r\n".to_vec();
    part.extend_from_slice(bytes);
    part.extend_from_slice(b"\r\n");
    part
}

fn open_with(address: &str, silence_ms: u64) -> edge_trt::Result<Box<dyn Camera>> {
    let request = CameraRequest { silence_ms: Some(silence_ms), ..CameraRequest::default() };
    open(&SourceSpec::parse(address).unwrap().with_request(request).unwrap(), "cam".into())
}

fn refused(address: &str, silence_ms: u64) -> String {
    match open_with(address, silence_ms) {
        Ok(_) => panic!("{address} opened"),
        Err(error) => {
            assert_eq!((error.kind(), error.place()), (edge_trt::ErrorKind::Source, Some(address)), "{error}");
            error.to_string()
        }
    }
}

/// Capture numbers and first samples until the source is lost, and why it was.
fn until_lost(camera: &mut dyn Camera) -> (Vec<(u64, u8)>, String) {
    let mut frames = Vec::new();
    let give_up = Instant::now() + Duration::from_secs(20);
    while Instant::now() < give_up {
        match camera.next(Duration::from_millis(50)) {
            Ok(Capture::Frame(frame)) => frames.push((frame.number, frame.picture.pixels.as_slice()[0])),
            Ok(Capture::Nothing) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (frames, error.to_string()),
        }
    }
    panic!("the source is never lost: {frames:?}");
}

#[test]
fn a_server_that_accepts_and_never_answers_times_out() {
    let address = server(|_stream| std::thread::sleep(Duration::from_secs(10)));
    let started = Instant::now();
    let error = refused(&address, 300);
    assert!(error.contains("does not answer within 0.3 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(refused(&format!("http://{nobody}/"), 300).contains("cannot be reached"));
}

#[test]
fn a_stream_that_goes_quiet_is_lost_and_shows_nothing_more() {
    for part in [counted, uncounted] {
        let address = server(move |mut stream| {
            stream.write_all(HEAD.as_bytes()).unwrap();
            for value in [10, 20, 30] {
                stream.write_all(&part(&jpeg(value))).unwrap();
                std::thread::sleep(Duration::from_millis(60));
            }
            stream.write_all(b"--frame\r\n").unwrap();
            std::thread::sleep(Duration::from_secs(10));
        });
        let mut camera = open_with(&address, 400).unwrap();
        let (frames, error) = until_lost(camera.as_mut());
        assert_eq!(frames.iter().map(|frame| frame.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(frames.iter().zip([10u8, 20, 30]).all(|(frame, value)| frame.1.abs_diff(value) < 6), "{frames:?}");
        assert!(error.contains("no whole picture") || error.contains("broke off"), "{error}");
    }
}

#[test]
fn halves_are_dropped_and_counted() {
    let address = server(|mut stream| {
        stream.write_all(HEAD.as_bytes()).unwrap();
        let whole = jpeg(50);
        let mut torn = whole.clone();
        torn.drain(whole.len() / 2..whole.len() / 2 + 40);
        for bytes in [whole.as_slice(), &whole[..whole.len() / 2], &torn, b"no picture", &whole] {
            stream.write_all(&counted(bytes)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        stream.write_all(&counted(&whole)[..whole.len() / 2]).unwrap();
    });
    let mut camera = open_with(&address, 2000).unwrap();
    let (frames, error) = until_lost(camera.as_mut());
    assert_eq!(frames.iter().map(|frame| frame.0).collect::<Vec<_>>(), [0, 4]);
    assert_eq!((camera.losses().damaged, camera.losses().missed), (3, 0));
    assert!(error.contains("closed the stream") || error.contains("broke off"), "{error}");
}

#[test]
fn a_slow_reader_gets_the_newest_picture_and_the_rest_is_counted() {
    let address = server(|mut stream| {
        stream.write_all(HEAD.as_bytes()).unwrap();
        for value in 0..10 {
            stream.write_all(&counted(&jpeg(value * 20))).unwrap();
        }
        std::thread::sleep(Duration::from_secs(3));
    });
    let mut camera = open_with(&address, 1000).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let (frames, _) = until_lost(camera.as_mut());
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert!(frames[0].0 == 9 && frames[0].1.abs_diff(180) < 6, "{frames:?}");
    assert_eq!(camera.losses().missed, 9);
}

#[test]
fn what_is_no_stream_is_explained() {
    for (answer, expected) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404, expected 200"),
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "user name or password"),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
            "found content of type `text/html`",
        ),
        ("SSH-2.0-OpenSSH_9.6\r\n", "cannot be reached"),
    ] {
        let address = server(move |mut stream| {
            let _ = stream.write_all(answer.as_bytes());
        });
        let error = refused(&address, 2000);
        assert!(error.contains(expected), "{answer}: {error}");
    }
}

#[test]
fn a_picture_of_another_size_in_a_running_stream_ends_it() {
    let address = server(|mut stream| {
        stream.write_all(HEAD.as_bytes()).unwrap();
        stream.write_all(&counted(&jpeg(1))).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let mut other = Cursor::new(Vec::new());
        image::RgbImage::new(32, 32).write_to(&mut other, image::ImageFormat::Jpeg).unwrap();
        stream.write_all(&counted(other.get_ref())).unwrap();
        std::thread::sleep(Duration::from_secs(3));
    });
    let (frames, error) = until_lost(open_with(&address, 2000).unwrap().as_mut());
    assert_eq!(frames.len(), 1);
    assert!(error.contains("found a picture of 32×32 in the running stream, expected 64×48"), "{error}");
}

#[test]
fn a_folder_that_plays_a_camera_stops_with_an_end_and_not_with_its_last_picture() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "b.jpg"] {
        std::fs::write(folder.path().join(name), jpeg(5)).unwrap();
    }
    let text = format!("replay:{}?fps=200", folder.path().display());
    let mut camera = open(&SourceSpec::parse(&text).unwrap(), "cam".into()).unwrap();
    let mut frames = 0;
    loop {
        match camera.next(Duration::from_millis(20)).unwrap() {
            Capture::Frame(_) => frames += 1,
            Capture::End => break,
            other => assert!(matches!(other, Capture::Nothing), "{other:?}"),
        }
    }
    assert_eq!(frames, 2);
    assert!(matches!(camera.next(Duration::ZERO).unwrap(), Capture::End));
}
