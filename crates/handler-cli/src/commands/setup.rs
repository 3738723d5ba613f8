//! `handler setup`: from a fresh machine to a first session.

use super::folder::FolderAction;
use super::harness::HarnessAction;
use super::image::{ImageAction, StoreArgs};
use super::{Outcome, daemon, doctor, folder, harness, image, service};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// `handler setup`.
#[derive(Debug, Clone, Default, Args)]
pub struct SetupArgs {
    /// Ask nothing: do what the flags say, and the usual otherwise
    #[arg(long, short)]
    pub yes: bool,
    /// Let agents work in this folder and below (may be given several times)
    #[arg(long, value_name = "PATH")]
    pub folder: Vec<String>,
    /// Install this agent program (may be given several times)
    #[arg(long, value_name = "NAME")]
    pub harness: Vec<String>,
    /// Build no images; agents are installed for sandboxes without containers only
    #[arg(long)]
    pub no_build: bool,
    /// Start the daemon without making it a service
    #[arg(long)]
    pub no_service: bool,
}

/// Runs it: each step says what it does, and the first that fails ends it; it can be run again.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: SetupArgs, context: &Context) -> Outcome {
    let asks = !args.yes && !context.out.json && std::io::stdin().is_terminal();
    start(&args, asks, context).await?;
    heading("This machine", context);
    if doctor::run(false, context).await? != 0 {
        return Err(Failure::Failed(
            "nothing can run here yet: do what the marked lines say, then run `handler setup` again"
                .into(),
        ));
    }
    let mut folders = args.folder.clone();
    if folders.is_empty() && asks {
        folders.extend(answer("A folder agents may work in (empty: decide later)")?);
    }
    for path in folders {
        heading("Work folders", context);
        folder::run(FolderAction::Add { path }, context).await?;
    }
    let mut harnesses = args.harness.clone();
    if harnesses.is_empty() && asks {
        heading("Agents", context);
        harness::run(HarnessAction::List, context).await?;
        let names = answer("Which to install, separated by spaces (empty: none now)")?;
        harnesses.extend(
            names
                .iter()
                .flat_map(|n| n.split_whitespace().map(str::to_owned)),
        );
    }
    for name in harnesses {
        install(&name, args.no_build, context).await?;
    }
    context.out.note(NEXT);
    Ok(0)
}

/// What a person does then.
const NEXT: &str = "\nReady. Next:
  handler provider add NAME --template T   say where a model is (`handler provider templates`)
  cd your/project && handler project add   say what you work on
  handler run \"…\"                          give an agent a task
  handler demo                             or see a session with a scripted model first";

/// The daemon, as a service where that can be.
async fn start(args: &SetupArgs, asks: bool, context: &Context) -> Result<(), Failure> {
    let can = !args.no_service && service::has_manager();
    let wants = can
        && (!asks
            || answer("Make the daemon a service that starts when you log in? [Y/n]")?
                .is_none_or(|said| !said.to_lowercase().starts_with('n')));
    if wants {
        daemon::install(false, context).await?;
    } else {
        daemon::start(context).await?;
    }
    Ok(())
}

/// One agent program, for every way of running that is ready here.
async fn install(name: &str, no_build: bool, context: &Context) -> Result<(), Failure> {
    heading(name, context);
    let backends = context.client()?.backends().await?;
    let is_ready = |wanted: &str| backends.iter().any(|b| b.name == wanted && b.available);
    if is_ready("native") {
        let name = name.to_owned();
        harness::run(HarnessAction::Install { name }, context).await?;
    }
    let engine = ["podman", "docker"].into_iter().find(|name| is_ready(name));
    if let (Some(engine), false) = (engine, no_build) {
        let rebuild = ImageAction::Rebuild {
            target: name.to_owned(),
            store: StoreArgs {
                backend: Some(engine.to_owned()),
            },
        };
        if image::run(rebuild, context).await? != 0 {
            return Err(Failure::Failed(format!(
                "the image of {name} was not built"
            )));
        }
    }
    Ok(())
}

fn heading(text: &str, context: &Context) {
    context.out.note(format!("\n{}", context.out.bold(text)));
}

/// Asks on the terminal; an empty answer is none.
pub(super) fn answer(question: &str) -> Result<Option<String>, Failure> {
    let wrap = |error| Failure::local("cannot ask on the terminal", error);
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}: ").map_err(wrap)?;
    stderr.flush().map_err(wrap)?;
    drop(stderr);
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).map_err(wrap)?;
    if read == 0 {
        return Err(Failure::Failed("no answer was given".into()));
    }
    let said = line.trim();
    Ok((!said.is_empty()).then(|| said.to_owned()))
}
