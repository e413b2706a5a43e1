//! README and docs name only what is there: links, commands, flags.

use crate::workbench::Bench;
use std::path::{Path, PathBuf};

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![project().join("README.md"), project().join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/measurements"] {
        let entries = std::fs::read_dir(project().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !link.contains("://") && !file.is_empty() && !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_is_listed() {
    let list = std::fs::read_to_string(project().join("docs/README.md")).unwrap();
    for page in std::fs::read_dir(project().join("docs")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let listed = name == "README.md" || !name.ends_with(".md") || list.contains(&format!("]({name})"));
        assert!(listed, "docs/README.md does not list {name}");
    }
}

#[test]
fn the_flags_in_the_readme_exist() {
    let bench = Bench::new();
    let text = std::fs::read_to_string(project().join("README.md")).unwrap();
    let mut seen = 0;
    for line in text.lines().filter(|line| line.contains("edge-run ") || line.contains("edge-build ")) {
        let help = match line.contains("edge-build ") {
            true => bench.edge_build(&["--help"]).data,
            false => bench.edge_run(&["--help"]).data,
        };
        // Flags of cargo stand before ` -- `.
        let own = line.split(" -- ").last().unwrap();
        for flag in own.split([' ', '`', ';']).filter(|word| word.starts_with("--") && word.len() > 2) {
            let flag = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(help.contains(flag), "{line}: no {flag} in --help");
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} flags");
}

/// What was never run on hardware says so, for every flavour.
#[test]
fn the_readme_says_of_each_flavour_what_ran_where() {
    let text = std::fs::read_to_string(project().join("README.md")).unwrap();
    for flavour in ["trt8", "trt10", "trt11", "rtx", "cpu"] {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{flavour}` |"))).unwrap();
        assert_eq!(row.matches('|').count(), 5, "{row}");
        assert!(row.contains("untested on hardware"), "{row}");
    }
}
