//! docs/ci: the examples are YAML of the right shape, and every command in them is one that the programs understand.

use crate::common::lacks;
use clap::Parser;
use edge_trt::cli::{edge_build, edge_run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yml"));
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    files
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

/// The words of a shell line up to a redirection; `${{ … }}` and variables stand for a name.
fn words(line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    while let Some((before, rest)) = line.clone().split_once("${{") {
        line = format!("{before}line1{}", rest.split_once("}}").expect("a closed expression").1);
    }
    let line = line.replace("$LINE", "line1");
    assert!(!line.contains(['$', '`', '|', '\'', '"', ';', '&']), "this test does not read such a line: {line}");
    line.split_whitespace().take_while(|word| *word != ">").map(str::to_owned).collect()
}

/// Whether the program named first understands the rest.
fn understood(line: &str) -> Result<(), String> {
    let words = words(line);
    match words[0].as_str() {
        "edge-build" => edge_build::Flags::try_parse_from(&words).map(|_| ()).map_err(|error| error.to_string()),
        "edge-run" => edge_run::Typed::try_parse_from(&words).map(|_| ()).map_err(|error| error.to_string()),
        other => Err(format!("no program of ours: {other}")),
    }
}

#[test]
fn every_command_is_understood() {
    let mut seen = 0;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci/README.md");
    for file in files().into_iter().chain([page]) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let line = line.trim().trim_start_matches("- ").trim_start_matches("run: ");
            if line.starts_with("edge-build ") || line.starts_with("edge-run ") {
                understood(line).unwrap_or_else(|error| panic!("{}: {line}\n{error}", name(&file)));
                seen += 1;
            }
        }
    }
    assert!(seen >= 14, "{seen} commands");
    assert!(understood("edge-build engines/line1 --portabel").is_err());
    assert!(understood("edge-run bench x.edge --growth 3").is_err());
}

/// The file as a YAML reader sees it; `None` where there is no reader.
fn parsed(file: &Path) -> Option<Value> {
    let python = std::env::var("EDGE_PYTHON").unwrap_or("python3".to_owned());
    // `on` is true in YAML 1.1.
    let script = "import json, sys, yaml\nprint(json.dumps(yaml.safe_load(open(sys.argv[1])), default=str))";
    let has_yaml =
        Command::new(&python).args(["-c", "import yaml"]).output().is_ok_and(|output| output.status.success());
    if !has_yaml {
        lacks("yaml", "a Python with the package `pyyaml` (EDGE_PYTHON)");
        return None;
    }
    let output = Command::new(&python).args(["-c", script]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {}", name(file), String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("text")).collect()
}

#[test]
fn gitlab_files_have_jobs_with_scripts_and_their_reports() {
    for file in files().iter().filter(|file| name(file).starts_with("gitlab")) {
        let Some(whole) = parsed(file) else { return };
        let stages = texts(&whole["stages"]);
        let jobs = whole.as_object().unwrap().iter().filter(|(name, _)| *name != "stages");
        let mut count = 0;
        for (job, body) in jobs {
            count += 1;
            assert!(stages.contains(&body["stage"].as_str().unwrap()), "{job}");
            let script = texts(&body["script"]);
            assert!(script.iter().all(|line| line.starts_with("edge-")), "{script:?}");
            script.iter().for_each(|line| understood(line).unwrap());
            if let Some(junit) = body["artifacts"]["reports"]["junit"].as_str() {
                assert!(
                    script.iter().any(|line| line.contains(&format!("--junit {junit} "))),
                    "{junit} is not written"
                );
            }
            assert_eq!(body["artifacts"]["when"], "always", "{job}: a failed gate must leave its report");
        }
        assert!(count >= 1, "{}", name(file));
    }
}

#[test]
fn github_files_have_jobs_with_steps() {
    for file in files().iter().filter(|file| name(file).starts_with("github")) {
        let Some(whole) = parsed(file) else { return };
        assert!(whole.get("true").or(whole.get("on")).is_some(), "{}: no `on`", name(file));
        let mut commands = 0;
        for (job, body) in whole["jobs"].as_object().unwrap() {
            assert!(!body["runs-on"].is_null(), "{job}");
            for step in body["steps"].as_array().unwrap() {
                assert!(step["uses"].is_string() != step["run"].is_string(), "{job}: {step}");
                let run = step["run"].as_str().unwrap_or_default();
                for line in run.lines().filter(|line| line.starts_with("edge-")) {
                    understood(line).unwrap();
                    commands += 1;
                }
            }
        }
        assert!(commands >= 2, "{}", name(file));
    }
}
