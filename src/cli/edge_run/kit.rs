//! `edge-run bench --kit`: everything that a figure from somebody else's machine needs, in one archive.

use crate::bundle::{Bundle, Files, write_archive};
use crate::cli::{Terminal, doctor};
use crate::error::{Error, Result};
use crate::run::bench::{BenchOptions, bench, check};
use crate::run::doctor::{Request, examine};
use crate::run::machine;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What is in the archive, and what could not be had.
#[derive(Serialize)]
struct Contents {
    /// Version of the archive's form.
    schema: u32,
    edge_run: &'static str,
    /// Path of the bundle as given.
    bundle: String,
    /// Name of every part with `made`, or why it could not be made.
    parts: Vec<(String, String)>,
}

/// Makes the archive; it is written in every case, and says what this machine lacks.
///
/// # Errors
/// The archive cannot be written; afterwards the first error of a part.
pub(super) fn kit(path: &Path, options: &BenchOptions, terminal: &mut Terminal) -> Result<()> {
    let (mut files, mut parts, mut first) = (Files::new(), vec![], None::<Error>);
    let mut part = |terminal: &mut Terminal, name: &str, made: Result<Vec<(&str, String)>>, files: &mut Files| {
        let said = match made {
            Ok(made) => {
                files.extend(made.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())));
                "made".to_owned()
            }
            Err(error) => {
                let hint = error.hint_text().map_or_else(String::new, |hint| format!(" ({hint})"));
                let said = format!("not made, exit code {}: {}{hint}", error.kind().exit_code(), error.message());
                first.get_or_insert(error);
                said
            }
        };
        terminal.say(format_args!("kit: {name}: {said}"));
        parts.push((name.to_owned(), said));
    };
    let request = Request {
        engine: Some(options.bundle.clone()),
        flavour: None,
        search: options.gpu.search.clone(),
        root: PathBuf::from("/"),
    };
    let made = doctor_part(&request);
    part(terminal, "doctor", made, &mut files);
    let made = plan_part(options);
    part(terminal, "plan", made, &mut files);
    let mut lines = vec![];
    let checked = check(options.gpu.device, &mut |line| lines.push(line.to_owned()));
    let text = lines.join("\n") + "\n";
    let failed = checked.as_ref().err().is_some_and(|_| lines.iter().any(|line| line.starts_with("FAIL")));
    if failed {
        files.insert("check.txt".to_owned(), text.clone().into_bytes());
    }
    part(terminal, "check of the kernels", checked.map(|()| vec![("check.txt", text)]), &mut files);
    let report = bench(options, &mut |_line| {});
    let made = report.and_then(|report| Ok(vec![("bench.md", report.to_markdown()), ("bench.json", json(&report)?)]));
    part(terminal, "bench", made, &mut files);
    let contents = Contents {
        schema: 1,
        edge_run: env!("CARGO_PKG_VERSION"),
        bundle: options.bundle.display().to_string(),
        parts,
    };
    files.insert("kit.json".to_owned(), json(&contents)?.into_bytes());
    write_archive(path, &files)?;
    terminal.say(format_args!("wrote {}: send it with your report", path.display()));
    first.map_or(Ok(()), Err)
}

fn doctor_part(request: &Request) -> Result<Vec<(&'static str, String)>> {
    // A bundle that cannot be read is the plan's part; the machine is examined all the same.
    let report = examine(request).or_else(|_| examine(&Request { engine: None, ..request.clone() }))?;
    Ok(vec![("doctor.txt", doctor::describe(&report)), ("doctor.json", json(&report)?)])
}

/// What the plan was made from, after its hash was checked.
fn plan_part(options: &BenchOptions) -> Result<Vec<(&'static str, String)>> {
    let bundle = Bundle::open(&options.bundle)?;
    let mut made = vec![("manifest.json", String::from_utf8_lossy(bundle.manifest_bytes()).into_owned())];
    if !machine::is_for_cpu(&bundle) {
        made.push(("plan.json", json(&machine::plan_for_this_machine(&bundle, &options.gpu)?.0)?));
    }
    Ok(made)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Error::unexpected("a part of the archive cannot be written as JSON").because(error))
}
