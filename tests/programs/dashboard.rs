//! deploy/grafana/edge-run.json: what Grafana needs to import it, and nothing but metrics that exist.

use edge_trt::telemetry::{Kind, Metric};
use serde_json::Value;
use std::collections::BTreeSet;

fn dashboard() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/grafana/edge-run.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every query, with where it stands.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap().iter().filter(|one| one["type"] == "query") {
        found.push((variable["name"].to_string(), variable["query"]["query"].as_str().unwrap().to_owned()));
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        found.extend(annotation["expr"].as_str().map(|expr| (annotation["name"].to_string(), expr.to_owned())));
    }
    found
}

/// Words of a query that can be names: letters, digits and `_`, outside of quotes.
fn words(query: &str) -> Vec<String> {
    let outside: String = query.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words = outside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The metric of a series name.
fn metric(name: &str) -> Option<Metric> {
    Metric::ALL.iter().copied().find(|metric| match metric.kind() {
        Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|end| *name == format!("{}{end}", metric.name())),
        _ => metric.name() == name,
    })
}

#[test]
fn every_metric_in_the_dashboard_exists_and_carries_the_labels_asked_for() {
    let mut seen = BTreeSet::new();
    for (place, query) in queries(&dashboard()) {
        let mut labels = BTreeSet::from(["job"]);
        for word in words(&query).iter().filter(|word| word.starts_with("edge_")) {
            let metric = metric(word).unwrap_or_else(|| panic!("{place}: there is no metric `{word}`"));
            labels.extend(metric.labels());
            labels.extend((metric.kind() == Kind::Histogram).then_some("le"));
            seen.insert(metric.name());
        }
        for label in
            ["stream", "engine", "reason", "le"].iter().filter(|label| words(&query).contains(&(**label).into()))
        {
            assert!(labels.contains(label), "{place}: no metric of `{query}` has the label `{label}`");
        }
    }
    assert!(seen.len() > 25, "{}: {seen:?}", seen.len());
    for needed in ["edge_engine_ready", "edge_incidents_total", "edge_recovery_steps_total", "edge_proofs_failed_total"]
    {
        assert!(seen.contains(needed), "{needed}");
    }
}

#[test]
fn the_reader_of_queries_would_notice_a_wrong_name() {
    assert!(metric("edge_engine_readyness").is_none());
    assert!(metric("edge_result_age_seconds").is_none(), "a histogram has no series of its bare name");
    assert_eq!(words(r#"sum by (le) (rate(edge_x_bucket{job=~"$job edge_y"}[1m]))"#)[4], "edge_x_bucket");
}

#[test]
fn panels_are_whole_and_do_not_overlap() {
    let dashboard = dashboard();
    for key in ["title", "uid", "schemaVersion", "time", "refresh", "templating", "annotations"] {
        assert!(!dashboard[key].is_null(), "{key}");
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!(
        (variables[0]["name"].as_str(), variables[0]["type"].as_str()),
        (Some("datasource"), Some("datasource"))
    );
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is there twice");
        let number = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(number("x") + number("w") <= 24, "{title}: wider than the grid");
        for cell in (number("x")..number("x") + number("w"))
            .flat_map(|x| (number("y")..number("y") + number("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert(cell), "{title}: overlaps another panel at {cell:?}");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(matches!(panel["type"].as_str(), Some("stat" | "timeseries")), "{title}: {}", panel["type"]);
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}: no description");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}: works with whatever Prometheus is chosen");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: no unit");
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert!(!targets.is_empty() && refs.len() == targets.len(), "{title}: targets {refs:?}");
    }
}
