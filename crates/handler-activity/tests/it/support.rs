//! The recorded screens.

use handler_activity::{Reading, Screen, classify};
use handler_types::observe::Activity;

/// One recorded screen: `<harness>-<state>[-detail].txt`.
pub(crate) struct Sample {
    pub(crate) file: String,
    pub(crate) harness: &'static str,
    /// What the name says; none: it names no state.
    pub(crate) state: Option<Activity>,
    pub(crate) rows: Vec<String>,
}

const HARNESSES: [&str; 7] = [
    "claude-code",
    "codex",
    "gemini-cli",
    "opencode",
    "pi",
    "qwen-code",
    "vibe",
];
const STATES: [Activity; 5] = [
    Activity::NeedsInput,
    Activity::Error,
    Activity::Working,
    Activity::Done,
    Activity::Idle,
];

/// All of them, by name.
pub(crate) fn samples() -> Vec<Sample> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
    let mut samples: Vec<Sample> = std::fs::read_dir(folder)
        .expect("the folder of samples")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let file = entry.file_name().into_string().expect("plain names");
            let text = std::fs::read_to_string(entry.path()).expect("UTF-8");
            let harness = HARNESSES
                .into_iter()
                .find(|harness| file.starts_with(&format!("{harness}-")))
                .expect("a harness we know");
            let rest = &file[harness.len() + 1..file.len() - ".txt".len()];
            let is_state =
                |state: &Activity| rest == state.as_str() || rest.starts_with(&format!("{state}-"));
            Sample {
                harness,
                state: STATES.into_iter().find(is_state),
                rows: text.lines().map(str::to_owned).collect(),
                file,
            }
        })
        .collect();
    samples.sort_by(|a, b| a.file.cmp(&b.file));
    assert!(samples.len() >= 56, "samples are missing");
    samples
}

impl Sample {
    /// Reads its rows from `from` on, told which harness it is or not.
    pub(crate) fn read(&self, from: usize, told: bool) -> Reading {
        read(&self.rows[from..], told.then_some(self.harness))
    }
}

/// Reads rows.
pub(crate) fn read(rows: &[String], harness: Option<&str>) -> Reading {
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    classify(&Screen {
        rows: &rows,
        harness,
        ..Screen::default()
    })
}
