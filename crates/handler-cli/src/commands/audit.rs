//! `handler audit`: what the filter decided and who changed what, kept over restarts; and whether it was tampered with.

use super::Outcome;
use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use crate::out::{Out, printable};
use clap::{Args, Subcommand, ValueEnum};
use handler_client::audit::AuditWish;
use handler_types::audit::{
    Actor, AuditRecord, AuditVerdict, AuditWhat, NetworkMode, PolicyChange,
};
use handler_types::audit::{GapPlace, PolicySummary};
use handler_types::egress::{EgressDecision, EgressEvent};
use handler_types::network::{AllowEntry, Enforcement};
use http_body_util::BodyExt as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Entries of a change that a line shows.
const SHOWN: usize = 5;

/// `handler audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    /// What to do (default: list)
    #[command(subcommand)]
    pub action: Option<AuditAction>,
    #[command(flatten)]
    pub list: ListArgs,
}

/// Subcommands of `handler audit`.
#[derive(Debug, Subcommand)]
pub enum AuditAction {
    /// Print the last lines
    List(ListArgs),
    /// Check that every line refers to the one before it
    Verify,
    /// Write the whole log, byte for byte
    Export {
        /// The file (default: standard output)
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
}

/// Which lines.
#[derive(Debug, Default, Args)]
pub struct ListArgs {
    /// Only about this sandbox (its whole id when it is gone)
    #[arg(long)]
    pub sandbox: Option<String>,
    /// Only about this session
    #[arg(long, conflicts_with = "sandbox")]
    pub session: Option<String>,
    /// Not before this time (2026-01-31T12:00:00Z), or this long ago (2h)
    #[arg(long)]
    pub since: Option<String>,
    /// Only this decision
    #[arg(long, value_enum)]
    pub decision: Option<Decision>,
    /// Only hosts with this text in them
    #[arg(long)]
    pub host: Option<String>,
    /// At most the last so many (1–1000, default 200)
    #[arg(long, short = 'n')]
    pub tail: Option<u32>,
    /// Go on with lines as they are written
    #[arg(long, short)]
    pub follow: bool,
}

/// Decisions as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Decision {
    /// Refused
    Denied,
    /// Listed
    Allowed,
    /// Let through although not listed
    Unlisted,
    /// A secret was given
    Injected,
    /// A secret's stand-in was going elsewhere; refused
    Leak,
    /// Another host was named inside a tunnel; refused
    Mismatch,
    /// Ends of what was let through
    Ended,
}

impl From<Decision> for EgressDecision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Denied => Self::Denied,
            Decision::Allowed => Self::Allowed,
            Decision::Unlisted => Self::Unlisted,
            Decision::Injected => Self::Injected,
            Decision::Leak => Self::Leak,
            Decision::Mismatch => Self::Mismatch,
            Decision::Ended => Self::Ended,
        }
    }
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: AuditArgs, context: &Context) -> Outcome {
    match args.action.unwrap_or(AuditAction::List(args.list)) {
        AuditAction::List(args) => list(args, context).await,
        AuditAction::Verify => verify(context).await,
        AuditAction::Export { output } => export(output.as_deref(), context).await,
    }
}

async fn list(args: ListArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    let session = match &args.session {
        Some(text) => Some(client.session(text).await?.id.to_string()),
        None => None,
    };
    let wish = AuditWish {
        after: None,
        limit: args.tail,
        since: args.since.as_deref().map(since).transpose()?,
        sandbox: args.sandbox,
        session,
        decision: args.decision.map(Into::into),
        host: args.host,
    };
    if !args.follow {
        let page = client.audit(&wish).await?;
        out.show(&page, |out, page| {
            page.records.iter().for_each(|record| print(out, record));
        });
        return Ok(0);
    }
    let mut lines = client.follow_audit(&wish).await?;
    loop {
        let line = tokio::select! {
            line = lines.next() => line?,
            _ = tokio::signal::ctrl_c() => return Ok(0),
        };
        let Some(record) = line else {
            return Err(Failure::Failed("the daemon has ended".into()));
        };
        if out.json {
            out.line(serde_json::to_string(&record).unwrap_or_default());
        } else {
            print(out, &record);
        }
    }
}

/// A time as it is, or one that long ago.
fn since(text: &str) -> Result<String, Failure> {
    if handler_base::clock::parse_rfc3339(text).is_some() {
        return Ok(text.to_owned());
    }
    let seconds = duration::parse(text, "--since")?;
    let ago = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    Ok(handler_base::clock::now_ms()
        .saturating_sub(ago)
        .to_string())
}

async fn verify(context: &Context) -> Outcome {
    let verdict = context.client()?.audit_verify().await?;
    context.out.show(&verdict, show_verdict);
    Ok(u8::from(!verdict.ok))
}

fn show_verdict(out: &Out, verdict: &AuditVerdict) {
    match &verdict.broken {
        None => out.line(format!(
            "ok: {} lines in {} files, number {} to {}",
            verdict.records, verdict.files, verdict.first, verdict.last
        )),
        Some(broken) if broken.line == 0 => out.line(format!("broken: {}", broken.reason)),
        Some(broken) => out.line(format!(
            "broken at line {} of {}: {}; lines up to number {} hold together",
            broken.line,
            printable(&broken.file),
            broken.reason,
            verdict.last
        )),
    }
    if verdict.missed > 0 {
        out.line(format!(
            "{} events are missing, and lines say where",
            verdict.missed
        ));
    }
    out.line(format!("last line: {}", verdict.head));
}

async fn export(output: Option<&Path>, context: &Context) -> Outcome {
    let mut body = context.client()?.export_audit().await?;
    let named = |path: &Path| format!("cannot write {}", path.display());
    let mut file = match output {
        Some(path) => {
            let opened = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path);
            Some((path, opened.map_err(|e| Failure::local(named(path), e))?))
        }
        None => None,
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Failure::Failed(format!("the log broke off: {e}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match &mut file {
            Some((path, file)) => {
                let written = file.write_all(&data);
                written.map_err(|e| Failure::local(named(path), e))?;
            }
            None => context.out.bytes(&data),
        }
    }
    Ok(0)
}

fn print(out: &Out, record: &AuditRecord) {
    let (word, text) = words(&record.what);
    let colour = match &record.what {
        AuditWhat::Egress { event } if event.decision.is_refusal() => "31",
        AuditWhat::Policy { .. } => "36",
        AuditWhat::Gap { .. } | AuditWhat::Torn { .. } => "33",
        _ => "0",
    };
    out.line(format!(
        "{:>6}  {}  {}  {}",
        record.seq,
        out.dim(&handler_base::clock::rfc3339(record.t)),
        out.paint(colour, &format!("{word:<8}")),
        printable(&text)
    ));
}

/// A line in words.
fn words(what: &AuditWhat) -> (&'static str, String) {
    match what {
        AuditWhat::Egress { event } => (event.decision.as_str(), of_event(event)),
        AuditWhat::Policy { change } => ("policy", of_change(change)),
        AuditWhat::Gap { missed, place } => {
            let why = match place {
                GapPlace::Filter => "the filter no longer kept them",
                GapPlace::Disk => "they could not be written",
            };
            ("gap", format!("{missed} missing: {why}"))
        }
        AuditWhat::Torn { bytes, .. } => {
            ("torn", format!("{bytes} bytes were cut off and put aside"))
        }
        AuditWhat::Retired { through, .. } => {
            ("retired", format!("lines up to {through} were removed"))
        }
        AuditWhat::Started { version } => ("started", format!("daemon {version}")),
    }
}

fn of_event(event: &EgressEvent) -> String {
    let mut text = format!("{}  {}", event.sandbox, event.host);
    let mut add = |name: &str, value: &Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {name} {value}"));
        }
    };
    add("secret", &event.secret);
    add("by", &event.rule);
    add("because", &event.reason);
    if let Some(end) = event.end {
        let (sent, received) = (
            super::observe::bytes(end.out_bytes),
            super::observe::bytes(end.in_bytes),
        );
        text.push_str(&format!(
            "  out {sent}  in {received}  {} ms",
            end.duration_ms
        ));
    }
    text
}

fn of_change(change: &PolicyChange) -> String {
    let of = match (&change.sandbox, &change.session) {
        (Some(sandbox), _) => sandbox.to_string(),
        (None, Some(session)) => session.to_string(),
        (None, None) => "-".to_owned(),
    };
    let after = summary(&change.after);
    let mode = match &change.before {
        None => format!("made {after}"),
        Some(before) if summary(before) == after => after,
        Some(before) => format!("{} → {after}", summary(before)),
    };
    let who = match &change.actor {
        Actor::Client { name } if name.is_empty() => "a client".to_owned(),
        Actor::Client { name } => name.clone(),
        Actor::Daemon => "the daemon".to_owned(),
    };
    let (added, removed) = (entries('+', &change.added), entries('-', &change.removed));
    format!("{of}  {mode}{added}{removed}  by {who}")
}

fn summary(policy: &PolicySummary) -> String {
    match (policy.mode, policy.enforcement) {
        (NetworkMode::None, _) => "none".to_owned(),
        (NetworkMode::Open, _) => "open".to_owned(),
        (NetworkMode::Filtered, Some(Enforcement::LogOnly)) => "log-only".to_owned(),
        (NetworkMode::Filtered, _) => "filtered".to_owned(),
    }
}

fn entries(sign: char, entries: &[AllowEntry]) -> String {
    let mut text = String::new();
    for entry in entries.iter().take(SHOWN) {
        text.push_str(&format!("  {sign}{entry}"));
    }
    if entries.len() > SHOWN {
        text.push_str(&format!("  {sign}{} more", entries.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::network::NetworkPolicy;

    #[test]
    fn a_change_is_told_in_a_line() {
        let before = NetworkPolicy::Filtered {
            allow: vec!["a.example:1".parse().expect("entry")],
            enforcement: Enforcement::Enforce,
        };
        let after = NetworkPolicy::Filtered {
            allow: vec!["b.example:1".parse().expect("entry")],
            enforcement: Enforcement::LogOnly,
        };
        let actor = Actor::Client {
            name: "handler/1".into(),
        };
        let change = PolicyChange::between(actor, Some(&before), &after);
        assert_eq!(
            of_change(&change),
            "-  filtered → log-only  +b.example:1  -a.example:1  by handler/1"
        );
    }

    #[test]
    fn a_time_may_be_a_length_of_time() {
        assert_eq!(
            since("2026-01-31T12:00:00Z").expect("time"),
            "2026-01-31T12:00:00Z"
        );
        assert!(since("2h").expect("length").parse::<i64>().is_ok());
        assert!(since("yesterday").is_err());
    }
}
