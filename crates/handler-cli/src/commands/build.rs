//! `handler build`: long work on images, listed, followed, cancelled.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::printable;
use clap::Subcommand;
use handler_client::Client;
use handler_types::build::{BuildFrame, BuildState, BuildView};
use std::time::{Duration, Instant};

/// How long a lost connection is tried to be made again.
const COME_BACK: Duration = Duration::from_secs(30);

/// What to do with builds. A build is named by its id or the beginning of it.
#[derive(Debug, Subcommand)]
pub enum BuildAction {
    /// List the last builds, pulls and imports
    #[command(visible_alias = "ls")]
    List,
    /// Show one
    Show {
        /// The build
        build: String,
    },
    /// Print its log
    Log {
        /// The build
        build: String,
        /// Go on until it ends
        #[arg(long, short)]
        follow: bool,
    },
    /// Cancel it: nothing of it is left
    Cancel {
        /// The build
        build: String,
    },
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: BuildAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        BuildAction::List => {
            let builds = client.builds().await?;
            out.show(&builds, |out, builds| {
                let rows: Vec<Vec<String>> = builds.iter().map(row).collect();
                out.table(
                    &["ID", "KIND", "BACKEND", "TARGET", "STATE", "CREATED"],
                    &rows,
                );
            });
        }
        BuildAction::Show { build } => show(&client.build(&build).await?, context),
        BuildAction::Log { build, follow } if follow => {
            let id = client.build(&build).await?.id;
            let build = follow_to_end(&client, id.as_str(), context, false).await?;
            return Ok(u8::from(build.state != BuildState::Succeeded));
        }
        BuildAction::Log { build, .. } => {
            let mut offset = 0;
            loop {
                let text = client.build_log(&build, offset).await?;
                if text.is_empty() {
                    break;
                }
                offset += text.len() as u64;
                out.text(printable(&text));
            }
        }
        BuildAction::Cancel { build } => {
            client.cancel_build(&build).await?;
            let id = client.build(&build).await?.id;
            let mut frames = client.follow_build(id.as_str(), u64::MAX / 4).await?;
            while let Some(frame) = frames.next().await? {
                if let BuildFrame::Build { build } = frame {
                    show(&build, context);
                }
            }
        }
    }
    Ok(0)
}

fn row(build: &BuildView) -> Vec<String> {
    vec![
        build.id.to_string(),
        kind(build),
        build.backend.clone(),
        build.target.clone(),
        state(build),
        build.created_at.clone(),
    ]
}

fn kind(build: &BuildView) -> String {
    format!("{:?}", build.kind).to_lowercase()
}

fn state(build: &BuildView) -> String {
    format!("{:?}", build.state).to_lowercase()
}

/// Prints one build.
pub(super) fn show(build: &BuildView, context: &Context) {
    context.out.show(build, |out, build| {
        out.line(format!(
            "{}  {} {}",
            build.id,
            kind(build),
            printable(&build.target)
        ));
        out.line(format!("state    {}", state(build)));
        let optional = [
            ("error", &build.error),
            ("step", &build.step),
            ("image", &build.image),
            ("started", &build.started_at),
            ("ended", &build.ended_at),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                out.line(format!("{name:<8} {}", printable(value)));
            }
        }
        for version in &build.versions {
            out.line(format!("holds    {}", printable(version)));
        }
    });
}

/// Follows a build that this command began: prints its log, cancels it on Ctrl-C, tells its end.
///
/// # Errors
/// A build that failed or was cancelled.
pub(super) async fn watch(client: &Client, build: &BuildView, context: &Context) -> Outcome {
    let over = follow_to_end(client, build.id.as_str(), context, true).await?;
    match over.state {
        BuildState::Succeeded => {
            context.out.show(&over, |out, build| {
                for version in &build.versions {
                    out.line(printable(version));
                }
                out.line(build.image.clone().unwrap_or_default());
            });
            Ok(0)
        }
        _ if context.out.json => {
            context.out.document(&over);
            Ok(1)
        }
        BuildState::Cancelled => Err(Failure::Failed(
            "cancelled; nothing of it is left".to_owned(),
        )),
        _ => Err(Failure::Failed(
            over.error.unwrap_or_else(|| "it failed".to_owned()),
        )),
    }
}

async fn follow_to_end(
    client: &Client,
    id: &str,
    context: &Context,
    is_ours: bool,
) -> Result<BuildView, Failure> {
    let mut seen = 0;
    let mut deadline = Instant::now() + COME_BACK;
    let mut is_cancelled = false;
    loop {
        let mut frames = match client.follow_build(id, seen).await {
            Ok(frames) => frames,
            Err(error) if error.problem().is_some() || Instant::now() > deadline => {
                return Err(error.into());
            }
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                _ = tokio::signal::ctrl_c(), if is_ours && !is_cancelled => {
                    is_cancelled = true;
                    context.out.note("cancelling…");
                    client.cancel_build(id).await?;
                    continue;
                }
            };
            match frame {
                Ok(Some(BuildFrame::Log { offset, text })) => {
                    seen = offset;
                    deadline = Instant::now() + COME_BACK;
                    print(context, &text, is_ours);
                }
                Ok(Some(BuildFrame::Build { build })) => return Ok(*build),
                // The daemon went away: it is asked again.
                Ok(None) | Err(_) => break,
            }
        }
        if Instant::now() > deadline {
            return Err(Failure::Failed(
                "the daemon went away and did not come back".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// A log is what `build log` is asked for; of a build begun here it is only progress.
fn print(context: &Context, text: &str, is_progress: bool) {
    let text = printable(text);
    if !is_progress {
        context.out.text(text);
    } else if !context.out.quiet && !context.out.json {
        context.out.error_bytes(text.as_bytes());
    }
}
