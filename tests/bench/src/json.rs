//! The result as a document, for comparing runs.

use crate::args::Args;
use crate::context::Context;
use crate::figures::Figures;
use crate::line::{Line, Peer};
use crate::machine::{self, Machine};
use crate::rows::Report;
use anyhow::Context as _;
use serde_json::{Value, json};
use std::path::Path;

/// The whole document.
pub(crate) fn document(
    machine: &Machine,
    context: &Context,
    args: &Args,
    report: &Report,
) -> Value {
    let failures: Vec<Value> = report
        .failures
        .iter()
        .map(|(row, why)| json!({ "row": row, "why": why }))
        .collect();
    json!({
        "format": "handler.bench/v1",
        "quick": args.quick,
        "machine": machine.document(),
        "versions": machine::versions(&context.handler),
        "lines": report.lines.iter().map(|line| describe(line, args.quick)).collect::<Vec<_>>(),
        "failures": failures,
    })
}

fn describe(line: &Line, quick: bool) -> Value {
    let mut value = json!({
        "id": line.id,
        "what": line.what,
        "unit": line.unit.to_string(),
        "ours": line.ours.as_ref().map(figures),
    });
    match &line.peer {
        Peer::None => {}
        Peer::Absent { name, why } => value["peer"] = json!({ "name": name, "absent": why }),
        Peer::Measured {
            name,
            figures: theirs,
        } => {
            value["peer"] = json!({ "name": name, "figures": figures(theirs) });
        }
    }
    if let Some(ratio) = line.ratio() {
        value["ratio"] = json!(ratio);
    }
    if let Some(added) = line.added() {
        value["added"] = json!(added);
    }
    if line.target.is_some() {
        value["target"] = json!(line.target_text());
        if let (Some(is_met), false) = (line.is_met(), quick) {
            value["met"] = json!(is_met);
        }
    }
    if !line.note.is_empty() {
        value["note"] = json!(line.note);
    }
    value
}

fn figures(figures: &Figures) -> Value {
    json!({
        "count": figures.count,
        "median": figures.median,
        "p95": figures.p95,
        "min": figures.min,
        "max": figures.max,
    })
}

/// Writes it; folders are made.
pub(crate) fn write(path: &Path, document: &Value) -> anyhow::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(document)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Bound, Target, Unit};

    #[test]
    fn a_line_is_judged_only_in_a_full_run() {
        let line = Line::new("a/b", "it", Unit::Ms, &[2.0])
            .against("peer", &[4.0])
            .promised(Target::Ratio(Bound::AtMost(1.0)));
        let full = describe(&line, false);
        assert_eq!((&full["met"], &full["ratio"]), (&json!(true), &json!(0.5)));
        assert_eq!(full["peer"]["figures"]["median"], json!(4.0));
        let quick = describe(&line, true);
        assert!(quick.get("met").is_none() && quick["target"] == json!("≤ 1×"));
    }

    #[test]
    fn an_absent_peer_says_why() {
        let line = Line::new("a/b", "it", Unit::Ms, &[2.0]).without("podman", "not installed");
        let value = describe(&line, false);
        assert_eq!(
            value["peer"],
            json!({ "name": "podman", "absent": "not installed" })
        );
        assert!(value.get("ratio").is_none());
    }
}
