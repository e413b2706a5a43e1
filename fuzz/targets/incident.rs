//! Any bytes as a recorded incident: opened, every frame looked at, every picture decoded. Bytes that start with `{` are taken
//! for its frames, those of a PNG for its first picture, and packed with the other entries of a whole one, so that the fuzzer
//! gets past the checksums.
#![no_main]

mod archive;

use edge_trt::run::incident::recording::Recording;
use libfuzzer_sys::fuzz_target;

const WHOLE: &[u8] = include_bytes!("../corpus/incident/whole.zip");

fuzz_target!(|bytes: &[u8]| {
    let name = match bytes {
        [b'{', ..] => Some("frames.jsonl"),
        [0x89, b'P', ..] => Some("pictures/000000.png"),
        _ => None,
    };
    let packed = name.map(|name| archive::with_entry(WHOLE, name, bytes).expect("any bytes can be packed"));
    let path = std::env::temp_dir().join(format!("edge-trt-fuzz-{}.zip", std::process::id()));
    std::fs::write(&path, packed.as_deref().unwrap_or(bytes)).expect("the folder for temporary files can be written");
    if let Ok(recording) = Recording::open(&path) {
        for frame in recording.frames() {
            let _picture = recording.picture(frame);
        }
        let _bundle = recording.bundle();
    }
    let _removed = std::fs::remove_file(&path);
});
