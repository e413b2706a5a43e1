//! Tests against `tests/doubles/cuda.c`, compiled at test time.

use super::*;
use crate::ErrorKind;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Compiles a C file of `tests/doubles` to a shared library at `target`; equal ones are compiled once a process and copied.
pub(crate) fn compile(source: &str, target: &Path, defines: &[&str]) {
    static COMPILED: Mutex<Option<(tempfile::TempDir, HashMap<String, PathBuf>)>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (folder, files) = compiled.get_or_insert_with(|| (tempfile::tempdir().unwrap(), HashMap::new()));
    let next = folder.path().join(files.len().to_string());
    let file = files.entry(format!("{source} {defines:?}")).or_insert_with(|| {
        compile_now(source, &next, defines);
        next
    });
    std::fs::copy(file, target).unwrap();
}

fn compile_now(source: &str, target: &Path, defines: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles").join(source);
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([target.as_os_str(), source.as_os_str()])
        .args(defines.iter().map(|define| format!("-D{define}")))
        .output()
        .expect("a C compiler, as the Rust linker needs one too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn library(defines: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    compile("cuda.c", &path, defines);
    (folder, path)
}

fn live(path: &Path) -> i64 {
    // SAFETY: the double is already loaded; its function takes nothing and returns a long.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let live = *library.get::<unsafe extern "C" fn() -> i64>(b"double_live\0").unwrap();
        std::mem::forget(library);
        live()
    }
}

#[test]
fn a_graph_repeats_copies_and_everything_is_given_back() {
    let (_folder, path) = library(&[]);
    let driver = Driver::from_file(&path).unwrap();
    assert_eq!(driver.version().to_string(), "12.6");
    let found = devices(driver).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].compute_capability, found[0].integrated), (87, true));
    assert!(found[0].to_string().contains("compute capability 8.7"));
    {
        let context = Context::new(driver, 0, Wait::Block).unwrap();
        let stream = Stream::new(&context).unwrap();
        let device = std::sync::Arc::new(DeviceBuffer::new(&context, 1024).unwrap());
        let free_bytes = context.memory().unwrap().free.0;
        assert_eq!(free_bytes, (64 << 20) - 1024);
        let mut from = PinnedBuffer::new(&context, 16).unwrap();
        let to = PinnedBuffer::new(&context, 16).unwrap();
        assert_eq!(to.as_slice(), [0; 16]);
        // SAFETY: the buffers live to the end of this block, after the graph, and are touched between launches only.
        let mut graph = unsafe {
            Graph::record(&stream, vec![Box::new(std::sync::Arc::clone(&device))], || {
                device.fill(0, &stream)?;
                device.copy_from(512, &from, &stream)?;
                device.copy_to(512, &to, &stream)
            })
        }
        .unwrap();
        for value in [3, 4] {
            from.as_mut_slice().fill(value);
            graph.launch().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(to.as_slice(), [value; 16]);
        }
        let (start, end) = (Event::new(&context, Wait::Spin).unwrap(), Event::new(&context, Wait::Block).unwrap());
        assert!(!end.is_done().unwrap());
        start.record(&stream).unwrap();
        end.record(&stream).unwrap();
        end.synchronize().unwrap();
        assert!(end.is_done().unwrap());
        assert_eq!(start.elapsed_until(&end).unwrap().as_micros(), 1500);
        stream.wait_for(&end).unwrap();
        context.synchronize().unwrap();
        assert!(live(&path) > 0);
        let moved = std::thread::spawn(move || drop((graph, device, from, to, start, end, stream, context)));
        moved.join().unwrap();
    }
    assert_eq!(live(&path), 0);
}

#[test]
fn a_part_outside_of_a_buffer_and_too_large_an_allocation_are_refused() {
    let (_folder, path) = library(&["MEMORY_BYTES=4096"]);
    let context = Context::new(Driver::from_file(&path).unwrap(), 0, Wait::Spin).unwrap();
    let buffer = DeviceBuffer::new(&context, 100).unwrap();
    assert!(buffer.part(60, 40).is_ok());
    assert!(buffer.part(60, 41).is_err());
    assert!(buffer.part(usize::MAX, 2).is_err());
    let error = DeviceBuffer::new(&context, 8192).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"), "{error}");
    assert!(error.to_string().contains("8.0 KiB of device memory"), "{error}");
}

#[test]
fn a_failed_recording_leaves_the_stream_usable() {
    let (_folder, path) = library(&[]);
    let context = Context::new(Driver::from_file(&path).unwrap(), 0, Wait::Block).unwrap();
    let stream = Stream::new(&context).unwrap();
    // SAFETY: nothing is enqueued.
    let failed = unsafe { Graph::record(&stream, vec![], || Err(crate::Error::unexpected("no"))) };
    assert_eq!(failed.err().unwrap().message(), "no");
    stream.synchronize().unwrap();
    drop((stream, context));
    assert_eq!(live(&path), 0);
}

#[test]
fn drivers_that_cannot_be_used_say_why() {
    for (defines, expected) in [
        (&["INIT_CODE=100"][..], "does not start: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"),
        (&["INIT_CODE=12345"], "does not start: an unknown error (12345)"),
        (&["VERSION=11020"], "found a driver for CUDA 11.2, expected 11.4 or newer"),
        (&["DEVICES=0"], "with 0 devices"),
    ] {
        let (_folder, path) = library(defines);
        let error = Driver::from_file(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MachineLacks);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let (_folder, path) = library(&[]);
    let error = Context::new(Driver::from_file(&path).unwrap(), 1, Wait::Block).unwrap_err();
    assert!(error.message().contains("found 1 CUDA devices, expected one with ordinal 1"), "{error}");
}
