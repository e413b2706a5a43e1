//! Any bytes as a bundle: opened, every entry read, the known answers decoded. Bytes that start with `{` are taken for a
//! manifest and packed with the other entries of a whole bundle, so that the fuzzer gets past the checksums.
#![no_main]

use edge_trt::bundle::{Bundle, MANIFEST};
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const WHOLE: &[u8] = include_bytes!("../corpus/bundle/whole.edge");

fn with_manifest(manifest: &[u8]) -> zip::result::ZipResult<Vec<u8>> {
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut whole = ZipArchive::new(Cursor::new(WHOLE))?;
    let mut packed = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..whole.len() {
        let mut entry = whole.by_index(index)?;
        let name = entry.name()?.into_owned();
        packed.start_file(&name, stored)?;
        if name == MANIFEST {
            packed.write_all(manifest)?;
        } else {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            packed.write_all(&bytes)?;
        }
    }
    Ok(packed.finish()?.into_inner())
}

fuzz_target!(|bytes: &[u8]| {
    let packed = bytes.starts_with(b"{").then(|| with_manifest(bytes).expect("any manifest can be packed"));
    let path = std::env::temp_dir().join(format!("edge-trt-fuzz-{}.edge", std::process::id()));
    std::fs::write(&path, packed.as_deref().unwrap_or(bytes)).expect("the folder for temporary files can be written");
    if let Ok(bundle) = Bundle::open(&path) {
        for name in bundle.entry_names().map(str::to_owned).collect::<Vec<_>>() {
            let _bytes = bundle.read(&name);
        }
        let _model = bundle.model();
        let _golden = bundle.golden();
    }
    let _removed = std::fs::remove_file(&path);
});
