//! Any bytes as a bundle: opened, every entry read, the known answers decoded.
#![no_main]

use edge_trt::bundle::Bundle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("edge-trt-fuzz-{}.edge", std::process::id()));
    std::fs::write(&path, bytes).expect("the folder for temporary files can be written");
    if let Ok(bundle) = Bundle::open(&path) {
        for name in bundle.entry_names().map(str::to_owned).collect::<Vec<_>>() {
            let _bytes = bundle.read(&name);
        }
        let _model = bundle.model();
        let _golden = bundle.golden();
    }
    let _removed = std::fs::remove_file(&path);
});
