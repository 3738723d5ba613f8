//! `handler session search|usage|export|rename|archive`: sessions looked back at.

use super::{Outcome, current_folder};
use crate::context::Context;
use crate::exit::Failure;
use crate::out::printable;
use clap::{Args, ValueEnum};
use handler_types::session_text::{ChangeSession, MessageRole, SessionHit, UsageSumView};
use http_body_util::BodyExt as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// `handler session search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Words that one message must have; "words in quotes" stand together
    #[arg(required = true)]
    pub words: Vec<String>,
    /// In every folder's sessions (default: the current folder's)
    #[arg(long, short)]
    pub all: bool,
    /// In one session
    #[arg(long, value_name = "SESSION", conflicts_with = "all")]
    pub session: Option<String>,
    /// In archived sessions too
    #[arg(long)]
    pub archived: bool,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
}

/// What sums are made for.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum By {
    /// Each day
    #[default]
    Day,
    /// Each session
    Session,
    /// Each folder
    Folder,
    /// Each agent program
    Harness,
    /// Each account
    Account,
    /// Each provider
    Provider,
    /// Each model
    Model,
    /// Each agent
    Agent,
}

/// `handler session usage`.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// What sums are made for
    #[arg(long, value_enum, default_value_t)]
    pub by: By,
    /// From this day on (YYYY-MM-DD, UTC)
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Up to and with this day
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Of one session
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

/// Which document.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Form {
    /// To read
    #[default]
    Markdown,
    /// The session and all its events
    Json,
}

/// `handler session export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The session
    pub session: String,
    /// Which document
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// A new file (default: standard output)
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Searches.
pub(super) async fn search(args: SearchArgs, context: &Context) -> Outcome {
    // What the shell took for one word stays together.
    let whole = |word: &String| match word.contains(char::is_whitespace) {
        true => format!("\"{}\"", word.replace('"', " ")),
        false => word.clone(),
    };
    let text = args.words.iter().map(whole).collect::<Vec<_>>().join(" ");
    let scope = match args.all || args.session.is_some() {
        true => String::new(),
        false => current_folder()?,
    };
    let limit = args.limit.to_string();
    let query = [
        ("q", text.as_str()),
        ("scope", &scope),
        ("session", args.session.as_deref().unwrap_or_default()),
        ("archived", if args.archived { "true" } else { "" }),
        ("limit", &limit),
    ];
    let found = context.client()?.search_sessions(&query).await?;
    context.out.show(&found.items, |out, items| {
        for hit in items {
            out.line(hit_line(hit));
        }
        if items.is_empty() && !scope.is_empty() {
            out.note("nothing in this folder's sessions; --all looks into every folder's");
        }
    });
    Ok(0)
}

fn hit_line(hit: &SessionHit) -> String {
    let who = match hit.role {
        MessageRole::Title => "title",
        MessageRole::User => "you",
        MessageRole::Agent => "agent",
    };
    // The marks of what was found are for pages.
    let text = hit.snippet.replace(['\u{2}', '\u{3}'], "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "{}  {:>6}  {who:<5}  {}",
        hit.session.id,
        hit.seq,
        printable(&text)
    )
}

/// Sums up.
pub(super) async fn usage(args: UsageArgs, context: &Context) -> Outcome {
    let by = match args.by {
        By::Day => "day",
        By::Session => "session",
        By::Folder => "scope",
        By::Harness => "harness",
        By::Account => "account",
        By::Provider => "provider",
        By::Model => "model",
        By::Agent => "agent",
    };
    let query = [
        ("by", by),
        ("from", args.from.as_deref().unwrap_or_default()),
        ("to", args.to.as_deref().unwrap_or_default()),
        ("session", args.session.as_deref().unwrap_or_default()),
    ];
    let sums = context.client()?.session_usage(&query).await?;
    context.out.show(&sums, |out, sums| {
        let rows: Vec<Vec<String>> = sums.iter().map(sum_row).collect();
        let first = by.to_uppercase();
        out.table(
            &[&first, "TURNS", "INPUT", "OUTPUT", "CACHED", "COST"],
            &rows,
        );
    });
    Ok(0)
}

fn sum_row(sum: &UsageSumView) -> Vec<String> {
    let cost = sum.cost.as_ref();
    vec![
        printable(&sum.key).to_string(),
        sum.turns.to_string(),
        sum.input_tokens.to_string(),
        sum.output_tokens.to_string(),
        sum.cached_tokens.to_string(),
        cost.map_or_else(
            || "-".into(),
            |cost| format!("{:.4} {}", cost.amount, cost.currency),
        ),
    ]
}

/// Writes the document.
pub(super) async fn export(args: ExportArgs, context: &Context) -> Outcome {
    let format = match args.format {
        Form::Markdown => "markdown",
        Form::Json => "json",
    };
    let mut body = context
        .client()?
        .export_session(&args.session, format)
        .await?;
    let mut file = args.output.as_deref().map(create).transpose()?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Failure::Failed(format!("the document broke off: {e}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match (&mut file, &args.output) {
            (Some(file), Some(path)) => file
                .write_all(&data)
                .map_err(|e| Failure::local(format!("cannot write {}", path.display()), e))?,
            _ => context.out.bytes(&data),
        }
    }
    Ok(0)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Failure::local(format!("cannot make {}", path.display()), e))
}

/// Renames or puts away.
pub(super) async fn change(session: &str, change: ChangeSession, context: &Context) -> Outcome {
    let view = context.client()?.change_session(session, &change).await?;
    context
        .out
        .show(&view, |out, view| out.line(view.id.as_str()));
    Ok(0)
}
