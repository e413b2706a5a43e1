//! Any bytes as a bundle: opened, every entry read, the known answers decoded. Bytes that start with `{` are taken for a
//! manifest and packed with the other entries of a whole bundle, so that the fuzzer gets past the checksums.
#![no_main]

mod archive;

use edge_trt::bundle::{Bundle, MANIFEST};
use libfuzzer_sys::fuzz_target;

const WHOLE: &[u8] = include_bytes!("../corpus/bundle/whole.edge");

fuzz_target!(|bytes: &[u8]| {
    let packed = bytes
        .starts_with(b"{")
        .then(|| archive::with_entry(WHOLE, MANIFEST, bytes).expect("any manifest can be packed"));
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
