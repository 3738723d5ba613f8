//! What is in the harness images that passed their check, by image id: asking an image would mean starting it.

use crate::state::App;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Images remembered; older ones are forgotten, which costs a line of text.
const MOST: usize = 200;

fn file(app: &App) -> PathBuf {
    app.settings.layout.state.join("image-versions.json")
}

fn read(app: &App) -> BTreeMap<String, String> {
    let text = std::fs::read(file(app)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The version line of an image; none: it is not known.
#[must_use]
pub fn of(app: &App, id: &str) -> Option<String> {
    read(app).remove(id)
}

/// Remembers one.
pub(super) fn keep(app: &App, id: &str, line: &str) {
    let mut all = read(app);
    while all.len() >= MOST {
        all.pop_first();
    }
    all.insert(id.to_owned(), line.to_owned());
    let text = serde_json::to_vec_pretty(&all).unwrap_or_default();
    if let Err(error) = handler_base::fs::write_atomic(&file(app), &text, 0o600) {
        tracing::warn!(%error, "an image's version is not remembered");
    }
}
