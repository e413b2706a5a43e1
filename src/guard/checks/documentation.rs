//! The tables in `docs/guard.md`, made from what the checks say of themselves.

use super::ALL;
use crate::guard::{Limits, Severity, Side};
use std::fmt::Write;
use std::path::Path;

fn checks() -> String {
    let mut table =
        String::from("| check | kind | side | compares | limits | off when |\n| --- | --- | --- | --- | --- | --- |\n");
    for (about, _) in ALL {
        let kind = match about.severity {
            Severity::Hard => "hard",
            Severity::Soft => "soft",
        };
        let side = match about.side {
            Side::Engine => "engine",
            Side::Picture => "picture",
        };
        let limits = about.limits.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let (name, compares, off_when) = (about.reason.label(), about.compares, about.off_when);
        writeln!(table, "| `{name}` | {kind} | {side} | {compares} | {limits} | {off_when} |").unwrap();
    }
    table
}

fn limits() -> String {
    let mut table = String::from("| limit | default | unit | meaning |\n| --- | --- | --- | --- |\n");
    for limit in Limits::TABLE {
        writeln!(table, "| `{}` | {} | {} | {} |", limit.name, limit.default, limit.unit, limit.meaning).unwrap();
    }
    table
}

fn texts() -> String {
    let mut table = String::from("| check | seen | what to do now | 现象 | 处理 |\n| --- | --- | --- | --- | --- |\n");
    for (about, _) in ALL {
        let (english, chinese) = (about.english, about.chinese);
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            about.reason.label(),
            english.seen,
            english.what_to_do,
            chinese.seen,
            chinese.what_to_do
        )
        .unwrap();
    }
    table
}

fn with_table(page: &str, name: &str, table: &str) -> String {
    let start = format!("<!-- {name} -->\n");
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("docs/guard.md lacks {start}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    format!("{before}{start}{table}<!-- end -->{after}")
}

#[test]
fn the_tables_in_the_documentation_are_those_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guard.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (name, table) in [("checks", checks()), ("limits", limits()), ("texts", texts())] {
        expected = with_table(&expected, name, &table);
    }
    if std::env::var_os("EDGE_WRITE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    } else {
        assert_eq!(page, expected, "run `EDGE_WRITE_DOCS=1 cargo test --lib guard::checks`");
    }
}
