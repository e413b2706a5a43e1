//! Files that people pass for an ONNX model, and the command that makes one of them.

use crate::error::{Error, Result};

const EXPORT: &str = "yolo export model=x.pt format=onnx";

/// Refuses bytes that are known to be something else; `file_name` makes the hint fit.
pub(super) fn check(bytes: &[u8], file_name: &str) -> Result<()> {
    let head = bytes.get(..bytes.len().min(1024)).unwrap_or_default();
    let stem = file_name.rsplit_once('.').map_or(file_name, |(stem, _)| stem);
    let export = format!("export it: `yolo export model={stem}.pt format=onnx`");
    let refuse =
        |found: &str, hint: String| Err(Error::refused(format!("found {found}, expected an ONNX model")).hint(hint));
    if bytes.is_empty() {
        return refuse("an empty file", "copy or export it again; the disk may have been full".to_owned());
    }
    if head.starts_with(b"version https://git-lfs") {
        return refuse("a Git LFS pointer", "fetch the file itself: `git lfs pull`".to_owned());
    }
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return zip(bytes, file_name, stem);
    }
    if head.first() == Some(&0x80) && head.get(1).is_some_and(|&version| (2..=5).contains(&version)) {
        return refuse("a Python pickle (an old PyTorch file)", export);
    }
    if head.get(4..8) == Some(b"TFL3") {
        return refuse("a TensorFlow Lite model", format!("export from the weights instead: `{EXPORT}`"));
    }
    if head.starts_with(b"\x89HDF") {
        return refuse("an HDF5 file (Keras weights)", format!("export from the weights instead: `{EXPORT}`"));
    }
    if head.starts_with(b"ftrt")
        || (head.starts_with(b"{") || head.get(4) == Some(&b'{')) && contains(head, b"\"stride\"")
    {
        return refuse("a built TensorRT engine", "give the ONNX file it was built from".to_owned());
    }
    if head.starts_with(&[0x1f, 0x8b]) {
        return refuse("a gzip file", format!("unpack it first: `gunzip {file_name}`"));
    }
    text(head, refuse)
}

fn zip(bytes: &[u8], file_name: &str, stem: &str) -> Result<()> {
    let weights = contains(bytes, b"data.pkl") || file_name.ends_with(".pt") || file_name.ends_with(".pth");
    let (found, hint) = if weights {
        ("PyTorch weights", format!("export them: `yolo export model={stem}.pt format=onnx`"))
    } else if contains(bytes, b"manifest.json") && contains(bytes, b"model.onnx") {
        ("a finished bundle", format!("run it: `edge-run --engine {file_name}`"))
    } else {
        ("a zip file", format!("unpack it and give the `.onnx` file in it: `unzip {file_name}`"))
    };
    Err(Error::refused(format!("found {found}, expected an ONNX model")).hint(hint))
}

fn text(head: &[u8], refuse: impl Fn(&str, String) -> Result<()>) -> Result<()> {
    let printable =
        head.len() > 16 && head.iter().all(|&byte| (0x20..0x7f).contains(&byte) || (9..=13).contains(&byte));
    let start = head.trim_ascii_start();
    if start.len() >= 5 && (start[..5].eq_ignore_ascii_case(b"<html") || start[..5].eq_ignore_ascii_case(b"<!doc")) {
        return refuse("a web page", "download the file itself (often a `raw` or `download` link)".to_owned());
    }
    if printable {
        return refuse("a text file", format!("give the exported model: `{EXPORT}`"));
    }
    Ok(())
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_foreign_file_names_itself_and_the_way_out() {
        let cases: [(&[u8], &str, &str); 8] = [
            (b"", "empty file", "again"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer", "git lfs pull"),
            (b"PK\x03\x04....best/data.pkl", "PyTorch weights", "yolo export model=best.pt format=onnx"),
            (b"PK\x03\x04....readme.txt", "zip file", "unzip"),
            (b"\x80\x02}q\x00.", "Python pickle", "yolo export"),
            (b"<!DOCTYPE html><html><body>404</body>", "web page", "download"),
            (b"ftrt\x00\x01\x02", "TensorRT engine", "ONNX file"),
            (b"nc: 3\nnames: [a, b, c]\n", "text file", "yolo export"),
        ];
        for (bytes, found, hint) in cases {
            let error = check(bytes, "best.onnx").unwrap_err();
            assert!(error.message().contains(found), "{error}");
            assert!(error.hint_text().unwrap().contains(hint), "{error}");
        }
    }

    #[test]
    fn the_start_of_a_model_is_no_foreign_file() {
        assert!(check(b"\x08\x08\x12\x07pytorch\x1a\x062.11.0:\xff", "a.onnx").is_ok());
    }
}
