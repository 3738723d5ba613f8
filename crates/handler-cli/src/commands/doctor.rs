//! `handler doctor`.

use super::Outcome;
use crate::context::Context;
use handler_types::api::CheckStatus;

/// Prints what was checked, and what to do; exit code 1 when nothing can run.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(context: &Context) -> Outcome {
    let backends = context.client()?.backends().await?;
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
        }
    });
    Ok(u8::from(!backends.iter().any(|b| b.available)))
}
