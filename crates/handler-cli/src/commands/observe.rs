//! `handler sandbox logs`, `metrics`, `agents`, `activity`, `top`.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::{Out, printable};
use clap::{Args, ValueEnum};
use handler_client::ClientError;
use handler_client::logs::LogWish;
use handler_types::api::Page;
use handler_types::event::ServerEvent;
use handler_types::observe::{
    Activity, ActivitySource, AgentView, LogLevel, LogLine, LogSource, SandboxActivity,
    SandboxMetrics,
};
use handler_types::sandbox::{SandboxState, SandboxView};
use std::time::Duration;

/// Between two looks of `--watch` and `top`.
const LOOK: Duration = Duration::from_secs(2);
/// Before a daemon that went away is asked again, and how often.
const AGAIN: Duration = Duration::from_millis(300);
const TRIES: u32 = 400;

/// `handler sandbox logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The sandbox
    pub sandbox: String,
    /// Go on with lines as they come, also over a restart of the daemon
    #[arg(long, short)]
    pub follow: bool,
    /// At most the last so many lines
    #[arg(long, short = 'n', default_value_t = 200)]
    pub tail: usize,
    /// Not before this time, e.g. 2026-01-31T12:00:00Z
    #[arg(long)]
    pub since: Option<String>,
    /// Only lines of this source
    #[arg(long, value_enum)]
    pub source: Option<Source>,
}

/// Sources as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Steps of its life
    Lifecycle,
    /// What its guest or launcher printed
    Guest,
    /// Refusals of the filter
    Egress,
    /// Commands
    Command,
    /// Terminals
    Terminal,
    /// What the container engine kept
    Container,
}

impl From<Source> for LogSource {
    fn from(source: Source) -> Self {
        match source {
            Source::Lifecycle => Self::Lifecycle,
            Source::Guest => Self::Guest,
            Source::Egress => Self::Egress,
            Source::Command => Self::Command,
            Source::Terminal => Self::Terminal,
            Source::Container => Self::Container,
        }
    }
}

/// Prints a sandbox's log.
///
/// # Errors
/// [`Failure`].
pub async fn logs(args: LogsArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    let mut wish = LogWish {
        tail: args.tail,
        after: None,
        since: args.since,
        source: args.source.map(Into::into),
    };
    if !args.follow {
        let lines = client.log_lines(&args.sandbox, &wish).await?;
        out.show(&lines, |out, lines| {
            for line in &lines.lines {
                print(out, line);
            }
        });
        return Ok(0);
    }
    // Found once by its name: the name may go to another one later.
    let id = client.sandbox(&args.sandbox).await?.id.to_string();
    let mut tries = 0;
    let mut was_there = false;
    loop {
        match follow(context, &id, &mut wish, &mut tries).await {
            Ok(true) => was_there = true,
            Ok(false) => return Ok(0),
            Err(error) if is_gone(&error) && was_there => {
                out.note("the sandbox is gone");
                return Ok(0);
            }
            Err(error) if tries < TRIES && is_away(&error) => {}
            Err(error) => return Err(error),
        }
        tries += 1;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows until the stream ends; whether to come back.
async fn follow(
    context: &Context,
    id: &str,
    wish: &mut LogWish,
    tries: &mut u32,
) -> Result<bool, Failure> {
    let client = context.client()?;
    let mut stream = client.follow_logs(id, wish).await?;
    *tries = 0;
    loop {
        let line = tokio::select! {
            line = stream.next() => line,
            _ = tokio::signal::ctrl_c() => return Ok(false),
        };
        match line {
            Ok(Some(line)) => {
                wish.after = Some(line.seq);
                wish.since = None;
                wish.tail = 10_000;
                if context.out.json {
                    context
                        .out
                        .line(serde_json::to_string(&line).unwrap_or_default());
                } else {
                    print(&context.out, &line);
                }
            }
            // The daemon stops, or the sandbox is gone: asked again, the answer says which.
            Ok(None) | Err(ClientError::Broken(_)) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_gone(error: &Failure) -> bool {
    matches!(error, Failure::Client(ClientError::Refused(problem)) if problem.status == 404)
}

fn is_away(error: &Failure) -> bool {
    match error {
        Failure::Client(ClientError::Refused(problem)) => problem.status == 503,
        Failure::Client(_) => true,
        _ => false,
    }
}

fn print(out: &Out, line: &LogLine) {
    let colour = match line.level {
        LogLevel::Info => "0",
        LogLevel::Warning => "33",
        LogLevel::Error => "31",
    };
    out.line(format!(
        "{}  {:<9}  {}",
        out.dim(&printable(&line.at)),
        line.source.as_str(),
        out.paint(colour, &printable(&line.message))
    ));
}

/// `handler sandbox metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// The sandbox
    pub sandbox: String,
    /// Print again every two seconds
    #[arg(long, short)]
    pub watch: bool,
    /// Samples of the last half hour
    #[arg(long, conflicts_with = "watch")]
    pub history: bool,
    /// At most the last so many samples (1–360)
    #[arg(long, requires = "history", default_value_t = 360)]
    pub limit: u32,
}

/// Prints what a sandbox uses.
///
/// # Errors
/// [`Failure`].
pub async fn metrics(args: MetricsArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    if args.history {
        let history = client.metrics_history(&args.sandbox, args.limit).await?;
        out.show(&history, |out, history| {
            let rows: Vec<Vec<String>> = history.samples.iter().map(sample).collect();
            out.table(&SAMPLE, &rows);
        });
        return Ok(0);
    }
    loop {
        let metrics = client.metrics(&args.sandbox).await?;
        out.show(&metrics, |out, metrics| {
            out.table(&SAMPLE, &[sample(metrics)]);
        });
        if !args.watch || !pause().await {
            return Ok(0);
        }
    }
}

const SAMPLE: [&str; 8] = [
    "TIME",
    "STATE",
    "CPU",
    "MEMORY",
    "DISK",
    "PROCESSES",
    "OUT",
    "IN",
];

fn sample(metrics: &SandboxMetrics) -> Vec<String> {
    let host = metrics.host.unwrap_or_default();
    let memory = host
        .memory_bytes
        .or_else(|| metrics.guest.map(|guest| guest.memory_bytes));
    let processes = metrics
        .guest
        .map(|guest| guest.processes)
        .or(host.processes);
    vec![
        metrics.at.clone(),
        word(metrics.state),
        metrics
            .cpu_percent
            .map_or_else(dash, |percent| format!("{percent:.1}%")),
        memory.map_or_else(dash, bytes),
        host.disk_bytes.map_or_else(dash, bytes),
        processes.map_or_else(dash, |count| count.to_string()),
        metrics.egress.map_or_else(dash, |e| bytes(e.out_bytes)),
        metrics.egress.map_or_else(dash, |e| bytes(e.in_bytes)),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn word(state: SandboxState) -> String {
    format!("{state:?}").to_lowercase()
}

/// Bytes as people read them.
#[must_use]
pub fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let digits = usize::from(unit != "B" && value < 100.0);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Waits for the next look; false when the person has seen enough.
async fn pause() -> bool {
    tokio::select! {
        () = tokio::time::sleep(LOOK) => true,
        _ = tokio::signal::ctrl_c() => false,
    }
}

/// Prints which agents a sandbox has and runs.
///
/// # Errors
/// [`Failure`].
pub async fn agents(sandbox: &str, context: &Context) -> Outcome {
    let list = context.client()?.agents(sandbox).await?;
    context.out.show(&list, |out, list| {
        let rows: Vec<Vec<String>> = list.agents.iter().map(agent).collect();
        out.table(&["HARNESS", "PRODUCT", "INSTALLED", "RUNNING"], &rows);
    });
    Ok(0)
}

fn agent(agent: &AgentView) -> Vec<String> {
    let installed = match (&agent.path, agent.installed) {
        (Some(path), _) => path.clone(),
        (None, true) => "yes".to_owned(),
        (None, false) => "no".to_owned(),
    };
    let running: Vec<String> = agent
        .running
        .iter()
        .map(|r| format!("{} ({})", r.pid, format!("{:?}", r.face).to_lowercase()))
        .collect();
    vec![
        agent.harness.clone(),
        agent.product.clone(),
        installed,
        running.join(", "),
    ]
}

/// `handler sandbox activity`.
#[derive(Debug, Args)]
pub struct ActivityArgs {
    /// The sandbox
    pub sandbox: String,
    /// Go on with changes as they come
    #[arg(long, short)]
    pub watch: bool,
}

/// Prints what a sandbox's terminals and sessions do.
///
/// # Errors
/// [`Failure`].
pub async fn activity(args: ActivityArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    if !args.watch {
        let activity = client.activity(&args.sandbox).await?;
        out.show(&activity, show_activity);
        return Ok(0);
    }
    let id = client.sandbox(&args.sandbox).await?.id.to_string();
    // Subscribed first, so that no change falls between.
    let mut events = client.events().await?;
    let now = client.activity(&id).await?;
    if out.json {
        out.line(serde_json::to_string(&now).unwrap_or_default());
    } else {
        show_activity(out, &now);
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(0),
        };
        match event {
            None => return Err(Failure::Failed("the daemon has ended".into())),
            Some(ServerEvent::Activity { sandbox, source }) if sandbox == id => {
                if out.json {
                    out.line(serde_json::to_string(&source).unwrap_or_default());
                } else {
                    out.line(source_row(out, &source).join("  "));
                }
            }
            Some(ServerEvent::SandboxRemoved { id: gone }) if gone == id => return Ok(0),
            Some(_) => {}
        }
    }
}

fn show_activity(out: &Out, activity: &SandboxActivity) {
    out.line(format!(
        "{} since {}",
        painted(out, activity.state),
        activity.since
    ));
    if !activity.sources.is_empty() {
        let rows: Vec<Vec<String>> = activity.sources.iter().map(plain_row).collect();
        out.table(&["WHAT", "STATE", "HARNESS", "SINCE", "WHY"], &rows);
    }
}

fn plain_row(source: &ActivitySource) -> Vec<String> {
    let what = match (&source.terminal, &source.session) {
        (Some(number), _) => format!("terminal {number}"),
        (None, Some(session)) => session.clone(),
        (None, None) => dash(),
    };
    let why = if source.why.text.is_empty() {
        source.why.rule.clone()
    } else {
        format!("{}: {}", source.why.rule, source.why.text)
    };
    vec![
        what,
        source.state.to_string(),
        source.harness.clone().unwrap_or_else(dash),
        source.since.clone(),
        why,
    ]
}

fn source_row(out: &Out, source: &ActivitySource) -> Vec<String> {
    let mut row: Vec<String> = plain_row(source).iter().map(|c| printable(c)).collect();
    row[1] = painted(out, source.state);
    row
}

fn painted(out: &Out, state: Activity) -> String {
    let colour = match state {
        Activity::NeedsInput => "33",
        Activity::Error => "31",
        Activity::Working => "36",
        Activity::Done => "32",
        Activity::Idle => "2",
    };
    out.paint(colour, state.as_str())
}

/// `handler sandbox top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print once instead of again and again
    #[arg(long)]
    pub once: bool,
}

/// Prints what all running sandboxes use, the busiest first.
///
/// # Errors
/// [`Failure`].
pub async fn top(args: TopArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    loop {
        let mut rows: Vec<(SandboxView, SandboxMetrics, Activity)> = Vec::new();
        for view in running(context).await? {
            let id = view.id.to_string();
            // One that ended meanwhile is left out.
            let (Ok(metrics), Ok(activity)) =
                (client.metrics(&id).await, client.activity(&id).await)
            else {
                continue;
            };
            rows.push((view, metrics, activity.state));
        }
        let busy = |metrics: &SandboxMetrics| metrics.cpu_percent.unwrap_or_default();
        rows.sort_by(|a, b| busy(&b.1).total_cmp(&busy(&a.1)));
        if out.json {
            let all: Vec<_> = rows
                .iter()
                .map(|(view, metrics, activity)| {
                    serde_json::json!({"id": view.id, "name": view.name, "activity": activity, "metrics": metrics})
                })
                .collect();
            out.document(&all);
        } else {
            if !args.once {
                out.text("\x1b[2J\x1b[H");
            }
            let cells: Vec<Vec<String>> = rows.iter().map(top_row).collect();
            out.table(
                &[
                    "NAME",
                    "ACTIVITY",
                    "CPU",
                    "MEMORY",
                    "DISK",
                    "PROCESSES",
                    "OUT",
                    "IN",
                ],
                &cells,
            );
        }
        if args.once || out.json || !pause().await {
            return Ok(0);
        }
    }
}

fn top_row((view, metrics, activity): &(SandboxView, SandboxMetrics, Activity)) -> Vec<String> {
    let mut row = vec![view.name.clone(), activity.to_string()];
    row.extend(sample(metrics).into_iter().skip(2));
    row
}

async fn running(context: &Context) -> Result<Vec<SandboxView>, Failure> {
    let client = context.client()?;
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let Page { items, next_cursor } = client.sandboxes(&cursor, 500).await?;
        let runs = |view: &SandboxView| view.state == SandboxState::Running;
        found.extend(items.into_iter().filter(runs));
        let Some(next) = next_cursor else {
            return Ok(found);
        };
        cursor = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_with_the_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(300 * 1024 * 1024), "300 MiB");
        assert_eq!(bytes(5 << 40), "5.0 TiB");
    }
}
