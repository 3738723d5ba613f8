//! The list of what is tried, as a part of `docs/hazards.md`.

use super::everything;
use std::fmt::Write as _;
use std::path::PathBuf;

const BEGIN: &str =
    "<!-- escapes: made by HANDLER_MADE=1 cargo test -p handler-conformance -- escape -->";
const END: &str = "<!-- /escapes -->";

/// Compares the page with the list; writes it when asked (`HANDLER_MADE=1`).
///
/// # Errors
/// When the page differs or cannot be read.
pub(crate) fn settle() -> Result<(), String> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/hazards.md");
    let kept = std::fs::read_to_string(&page).map_err(|error| error.to_string())?;
    let wanted = with_list(&kept).ok_or_else(|| format!("{} lacks `{BEGIN}`", page.display()))?;
    if kept == wanted {
        return Ok(());
    }
    if std::env::var_os("HANDLER_MADE").is_some_and(|value| value == "1") {
        return std::fs::write(&page, wanted).map_err(|error| error.to_string());
    }
    Err("docs/hazards.md does not list what is tried: HANDLER_MADE=1 cargo test -p handler-conformance -- escape_list".to_owned())
}

fn with_list(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}{END}{after}", list()))
}

fn list() -> String {
    let all = everything();
    let count: usize = all.iter().map(|(_, cases)| cases.len()).sum();
    let mut out =
        format!("\n{count} ways out are tried from inside on every engine; none gets out.\n");
    for (heading, cases) in all {
        write!(out, "\n{heading}:\n\n").unwrap();
        let mut whats: Vec<&str> = cases.iter().map(|case| case.what.as_str()).collect();
        whats.dedup();
        for what in whats {
            writeln!(out, "- {what}").unwrap();
        }
    }
    out.push('\n');
    out
}
