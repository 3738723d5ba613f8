//! Progress lines: for people, bounded, without control characters.

use handler_engine::images::Lines;

/// Says a line; a reader who went away is nobody's problem.
pub(crate) async fn say(lines: &Lines, text: &str) {
    lines.send(clean(text)).await.ok();
}

/// The same from a blocking thread.
pub(crate) fn say_blocking(lines: &Lines, text: &str) {
    lines.blocking_send(clean(text)).ok();
}

fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes >> 10) & 1023) * 10 / 1024),
    }
}
