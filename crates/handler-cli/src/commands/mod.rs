//! One file per command.

pub mod account;
pub mod acp;
pub mod agent;
mod agent_flags;
mod agent_network;
pub mod agent_terminal;
pub mod attach;
pub mod audit;
pub mod build;
pub mod cache;
pub mod containers;
pub mod context;
mod copy;
pub mod daemon;
mod detach;
pub mod doctor;
pub mod exec;
pub mod files;
pub mod folder;
mod follow;
pub mod fork;
pub mod git;
pub mod harness;
pub mod image;
pub mod knowledge;
pub mod launch;
pub mod lifetime;
pub mod login;
pub mod manual;
pub mod network;
pub mod observe;
mod pack;
mod paths;
pub mod ports;
pub mod preset;
pub mod project;
pub mod provider;
mod raw;
pub mod run;
pub mod sandbox;
pub mod secret;
mod service;
pub mod session;
pub mod session_folder;
pub mod session_texts;
pub mod setup;
pub mod ssh;
pub mod status;
pub mod terminal;
pub mod uninstall;
mod watch_terminal;
pub mod widen;

use crate::args::Action;
use crate::context::Context;
use crate::exit::Failure;

/// What a command ends with: the exit code, or why it failed.
pub type Outcome = Result<u8, Failure>;

/// Runs one.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: Action, context: &Context) -> Outcome {
    match action {
        Action::Run(args) => run::run(*args, context).await,
        Action::Attach(args) => attach::run(args, context).await,
        Action::Acp(args) => acp::run(*args, context).await,
        Action::Terminal(args) => agent_terminal::run(*args, context).await,
        Action::Shell(args) => terminal::shell(args, context).await,
        Action::Session(action) => session::run(action, context).await,
        Action::Project(action) => project::run(action, context).await,
        Action::Agent(action) => agent::run(*action, context).await,
        Action::Sandbox(action) => sandbox::run(action, context).await,
        Action::Fork(action) => fork::run(action, context).await,
        Action::Ssh(args) => ssh::ssh(args, context).await,
        Action::SshConfig { write } => ssh::config(write, context).await,
        Action::SshProxy(sandbox) => ssh::proxy(&sandbox, context).await,
        Action::Preset(action) => preset::run(action, context).await,
        Action::QuickFile(action) => preset::run_files(action, context).await,
        Action::Account(action) => account::run(action, context).await,
        Action::Context(action) => context::run(action, context).await,
        Action::Provider(action) => provider::run(action, context).await,
        Action::Secret(action) => secret::run(action, context).await,
        Action::Login(action) => login::run(action, context).await,
        Action::Harness(action) => harness::run(action, context).await,
        Action::Image(action) => image::run(action, context).await,
        Action::Build(action) => build::run(action, context).await,
        Action::Network(action) => widen::run(action, context).await,
        Action::Audit(args) => audit::run(args, context).await,
        Action::Folder(action) => folder::run(action, context).await,
        Action::Knowledge(action) => knowledge::run(action, context).await,
        Action::Cache(action) => cache::run(action, context).await,
        Action::Doctor { verbose } => doctor::run(verbose, context).await,
        Action::Status => status::run(context).await,
        Action::Setup(args) => setup::run(args, context).await,
        Action::Uninstall(args) => uninstall::run(args, context).await,
        Action::Daemon(action) => daemon::run(action, context).await,
        Action::Completions(shell) => manual::completions(shell, context),
        Action::Man(folder) => manual::pages(&folder, context),
    }
}

/// The current folder, as the daemon would name it.
///
/// # Errors
/// When it is gone or its name is no UTF-8.
pub fn current_folder() -> Result<String, Failure> {
    let folder = std::env::current_dir()
        .map_err(|error| Failure::local("cannot tell the current folder", error))?;
    folder
        .into_os_string()
        .into_string()
        .map_err(|_| Failure::Usage("the current folder's name is not UTF-8".into()))
}

/// A path made absolute against the current folder.
///
/// # Errors
/// As [`current_folder`].
pub fn absolute(path: &str) -> Result<String, Failure> {
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    Ok(format!("{}/{path}", current_folder()?))
}
