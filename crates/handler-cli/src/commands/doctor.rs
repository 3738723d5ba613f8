//! `handler doctor`.

use super::Outcome;
use crate::context::Context;
use handler_types::api::CheckStatus;
use handler_types::lifetime::Capabilities;

/// Prints what was checked, and what to do; exit code 1 when nothing can run.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(is_verbose: bool, context: &Context) -> Outcome {
    let client = context.client()?;
    let backends = client.backends().await?;
    context.out.show(&backends, |out, backends| {
        for backend in backends {
            let state = if backend.available {
                "ready"
            } else {
                "not usable"
            };
            out.line(format!("{} — {state}", out.bold(&backend.name)));
            for check in &backend.checks {
                let mark = match check.status {
                    CheckStatus::Ok => out.paint("32", "ok     "),
                    CheckStatus::Warning => out.paint("33", "warning"),
                    CheckStatus::Failed => out.paint("31", "failed "),
                };
                out.line(format!("  {mark}  {}: {}", check.name, check.detail));
                if let Some(mend) = &check.mend {
                    out.line(format!("           → {mend}"));
                }
            }
            if is_verbose {
                let abilities = abilities(&backend.capabilities);
                out.line(format!("  can      {abilities}"));
            }
        }
    });
    if is_verbose && !context.out.json {
        for line in super::status::host_lines(&client.host().await?) {
            context.out.line(line);
        }
    }
    Ok(u8::from(!backends.iter().any(|b| b.available)))
}

/// What a backend can do here, in words.
fn abilities(can: &Capabilities) -> String {
    let mut words: Vec<&str> = [
        (can.host_root, "host folders"),
        (can.images, "images"),
        (can.build, "builds"),
        (can.pause, "pause"),
        (can.memory_limit, "memory limit"),
        (can.cpu_limit, "CPU limit"),
        (can.pids_limit, "process limit"),
        (can.nested, "nested containers"),
        (can.privileged, "privileged"),
        (can.open_network, "own network"),
        (can.transparent_auto, "transparent mode"),
        (
            can.transparent && !can.transparent_auto,
            "transparent mode with `required`",
        ),
        (can.display, "display"),
        (can.users, "other users"),
    ]
    .iter()
    .filter(|(is_able, _)| *is_able)
    .map(|(_, word)| *word)
    .collect();
    words.extend(can.runtimes.iter().map(String::as_str));
    words.join(", ")
}
