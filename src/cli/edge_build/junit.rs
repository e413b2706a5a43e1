//! JUnit XML, as GitLab, GitHub and Jenkins read it: the build and each limit of the accuracy gate are test cases.

use super::outcome::End;
use crate::aside::AsideFile;
use crate::bundle::gate::GateResult;
use crate::error::{Error, ErrorKind, Result};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// One test case.
struct Case {
    name: String,
    verdict: Verdict,
}

enum Verdict {
    Passed,
    Skipped(String),
    /// A limit that does not hold.
    Failed(String),
    /// The build could not come to a verdict.
    Broken(String),
}

/// Writes the file of a build that ended like this; it appears whole or not at all.
///
/// # Errors
/// [`ErrorKind::Output`] when it cannot be written.
pub(super) fn write(path: &Path, suite: &str, end: &End<'_>) -> Result<()> {
    let mut file = AsideFile::create(path)?;
    file.write_all(text(suite, end).as_bytes())
        .map_err(|error| Error::output("the JUnit file cannot be written").because(error).at(path.display()))?;
    file.commit()
}

fn text(suite: &str, end: &End<'_>) -> String {
    let cases = cases(end);
    let count = |wanted: fn(&Verdict) -> bool| cases.iter().filter(|case| wanted(&case.verdict)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
        cases.len(),
        count(|verdict| matches!(verdict, Verdict::Failed(_))),
        count(|verdict| matches!(verdict, Verdict::Broken(_))),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
        end.took.as_secs_f64()
    );
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"{}\" {counts}>\n",
        escaped(suite)
    );
    for case in &cases {
        let _infallible =
            write!(text, "    <testcase classname=\"edge-build.{}\" name=\"{}\"", escaped(suite), escaped(&case.name));
        let _infallible = match &case.verdict {
            Verdict::Passed => writeln!(text, "/>"),
            Verdict::Skipped(why) => writeln!(text, "><skipped message=\"{}\"/></testcase>", escaped(why)),
            Verdict::Failed(why) => {
                writeln!(text, "><failure type=\"limit\" message=\"{}\"/></testcase>", escaped(why))
            }
            Verdict::Broken(why) => writeln!(text, "><error type=\"build\" message=\"{}\"/></testcase>", escaped(why)),
        };
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn cases(end: &End<'_>) -> Vec<Case> {
    let build = match end.result {
        Ok(_) => Verdict::Passed,
        // The gate's own cases tell it.
        Err(error) if error.kind() == ErrorKind::Accuracy && end.gate.is_some() => Verdict::Passed,
        Err(error) => Verdict::Broken(error.to_string()),
    };
    let mut cases = vec![Case { name: "build".to_owned(), verdict: build }];
    match end.gate {
        Some(gate) => cases.extend(limits(gate)),
        None if end.result.is_ok() => {
            let why = "no precision was converted, or no pictures judged it";
            cases.push(Case { name: "accuracy gate".to_owned(), verdict: Verdict::Skipped(why.to_owned()) });
        }
        None => {}
    }
    cases
}

fn limits(gate: &GateResult) -> impl Iterator<Item = Case> + '_ {
    gate.checks.iter().map(|check| {
        let found = format!("worse by {:.4}, at most {:.4} allowed", check.worse_by, check.allowed);
        let verdict = if check.passed { Verdict::Passed } else { Verdict::Failed(found) };
        Case { name: format!("accuracy gate: {}", check.name), verdict }
    })
}

/// Text for an attribute; characters that XML 1.0 does not know become `?`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            control if control < ' ' => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}
