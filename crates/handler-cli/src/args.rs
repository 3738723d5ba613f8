//! Flags as typed. The doc comments are the help texts.

use crate::commands::{
    account::AccountAction,
    acp::AcpArgs,
    agent::AgentAction,
    agent_terminal::TerminalArgs,
    attach::AttachArgs,
    audit::AuditArgs,
    build::BuildAction,
    cache::CacheAction,
    context::ContextAction,
    daemon::DaemonAction,
    folder::FolderAction,
    fork::ForkAction,
    harness::HarnessAction,
    image::ImageAction,
    knowledge::KnowledgeAction,
    login::LoginAction,
    preset::{PresetAction, QuickFileAction},
    project::ProjectAction,
    provider::ProviderAction,
    run::RunArgs,
    sandbox::SandboxAction,
    secret::SecretAction,
    session::SessionAction,
    setup::SetupArgs,
    ssh::SshArgs,
    terminal::ShellArgs,
    uninstall::UninstallArgs,
    widen::NetworkAction,
};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

/// Gives every AI agent its own computer
///
/// Runs coding agents and untrusted code in sandboxes on this machine: each sees only its project folder,
/// reaches only the hosts you allow, and never holds a real key.
#[derive(Debug, Parser)]
#[command(
    name = "handler",
    version,
    disable_help_subcommand = true,
    propagate_version = true
)]
pub struct Cli {
    /// Print JSON documents
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only what was asked for
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give an agent a task in the current folder and follow it
    Run(Box<RunArgs>),
    /// Follow a session from where it is: replay, then live; answer its questions
    Attach(AttachArgs),
    /// Be an agent for an editor that speaks ACP (Zed and others), on standard input and output
    Acp(Box<AcpArgs>),
    /// Open an agent program's own terminal in a sandbox of its own, gone when it closes
    Terminal(Box<TerminalArgs>),
    /// Open a shell in a sandbox: the named one, or the current folder's
    Shell(ShellArgs),
    /// List, show and stop sessions
    #[command(subcommand)]
    Session(SessionAction),
    /// Say what you work on: folders, their settings and agents
    #[command(subcommand)]
    Project(ProjectAction),
    /// Set up agents: a goal, its models, what they may reach
    #[command(subcommand)]
    Agent(Box<AgentAction>),
    /// Make and use sandboxes
    #[command(subcommand)]
    Sandbox(SandboxAction),
    /// Work on one project several times at once: forks with a branch and a sandbox each
    #[command(subcommand)]
    Fork(ForkAction),
    /// Open a shell in a sandbox with `ssh`, or run a command so
    Ssh(SshArgs),
    /// Print what `~/.ssh/config` needs for ssh, scp, rsync and editors
    SshConfig {
        /// Keep it in a file of our own, and say which line includes it
        #[arg(long)]
        write: bool,
    },
    /// Carry SSH to a sandbox (`ssh` starts it)
    #[command(hide = true)]
    SshProxy {
        /// The sandbox
        sandbox: String,
    },
    /// Keep requests for sandboxes under a name
    #[command(subcommand)]
    Preset(PresetAction),
    /// Keep small files that are put into sandboxes
    #[command(subcommand)]
    QuickFile(QuickFileAction),
    /// Keep subscriptions that agent programs log in with
    #[command(subcommand)]
    Account(AccountAction),
    /// Say what projects are for: work, home, a client
    #[command(subcommand)]
    Context(ContextAction),
    /// Say where models are
    #[command(subcommand)]
    Provider(ProviderAction),
    /// Keep secrets
    #[command(subcommand)]
    Secret(SecretAction),
    /// Keep logins of agent programs
    #[command(subcommand)]
    Login(LoginAction),
    /// Install agent programs
    #[command(subcommand)]
    Harness(HarnessAction),
    /// Get, build and remove images; rebuild agents' own
    #[command(subcommand)]
    Image(ImageAction),
    /// Follow and cancel long work on images
    #[command(subcommand)]
    Build(BuildAction),
    /// See what a sandbox, session or agent may reach and asks for, and change it
    #[command(subcommand)]
    Network(NetworkAction),
    /// See what was let out and refused and who changed what, and check that nothing was tampered with
    Audit(AuditArgs),
    /// Say in which folders agents may work
    #[command(subcommand)]
    Folder(FolderAction),
    /// See the folders of notes that agents may be given to read, and say where they lie
    #[command(subcommand)]
    Knowledge(KnowledgeAction),
    /// See, declare and empty what tools keep between sandboxes
    #[command(subcommand)]
    Cache(CacheAction),
    /// Check this machine, and say what to do
    Doctor {
        /// Show what each backend can do here, and what the machine hands out
        #[arg(long, short)]
        verbose: bool,
    },
    /// Get this machine ready: checks, the daemon as a service, a work folder, agent programs
    Setup(SetupArgs),
    /// Take Handler off this machine: sandboxes, service and daemon; with --purge what it keeps as well
    Uninstall(UninstallArgs),
    /// Say whether the daemon runs and what it holds
    Status,
    /// Start and stop the daemon
    #[command(subcommand)]
    Daemon(DaemonAction),
    /// See a whole session with a scripted model: no key, no network
    Demo(DemoArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write man pages into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Be the daemon, in the foreground
    Serve(ServeArgs),
    /// Be the egress filter (the daemon starts it)
    #[command(hide = true)]
    Egress(EgressArgs),
    /// Read a repository's HEAD or a file of a commit (the daemon starts it; the folder is standard input)
    #[command(hide = true)]
    ReadGit {
        /// `head`, or `file COMMIT PATH`
        #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
        asked: Vec<String>,
    },
    /// Be a scripted model server on loopback (tests, demo)
    #[command(hide = true)]
    ScriptedModel(ScriptedArgs),
    /// Print the API's description
    #[command(hide = true)]
    Openapi,
    /// Print the reference page
    #[command(hide = true)]
    Reference,
}

/// `handler serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Port on 127.0.0.1 (0: any free one; default 7430 or HANDLER_PORT)
    #[arg(long)]
    pub port: Option<u16>,
}

/// `handler egress`.
#[derive(Debug, Clone, Args)]
pub struct EgressArgs {
    /// Unix socket the daemon speaks to
    #[arg(long)]
    pub control: PathBuf,
}

/// `handler scripted-model`.
#[derive(Debug, Clone, Args)]
pub struct ScriptedArgs {
    /// Port on 127.0.0.1 (0: any free one)
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// File whose first line is the only key accepted
    #[arg(long)]
    pub key_file: Option<PathBuf>,
    /// Append each request to this file (NDJSON)
    #[arg(long)]
    pub log: Option<PathBuf>,
}

/// `handler demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Folder to work in (default: a new folder in the home)
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Harness to drive
    #[arg(long, default_value = "pi")]
    pub harness: String,
}

/// A command of the client.
#[derive(Debug)]
pub enum Action {
    /// As in [`Command`].
    Run(Box<RunArgs>),
    /// As in [`Command`].
    Attach(AttachArgs),
    /// As in [`Command`].
    Acp(Box<AcpArgs>),
    /// As in [`Command`].
    Terminal(Box<TerminalArgs>),
    /// As in [`Command`].
    Shell(ShellArgs),
    /// As in [`Command`].
    Session(SessionAction),
    /// As in [`Command`].
    Project(ProjectAction),
    /// As in [`Command`].
    Agent(Box<AgentAction>),
    /// As in [`Command`].
    Sandbox(SandboxAction),
    /// As in [`Command`].
    Fork(ForkAction),
    /// As in [`Command`].
    Ssh(SshArgs),
    /// As in [`Command`].
    SshConfig {
        /// Keep it in a file.
        write: bool,
    },
    /// As in [`Command`].
    SshProxy(String),
    Preset(PresetAction),
    /// As in [`Command`].
    QuickFile(QuickFileAction),
    /// As in [`Command`].
    Account(AccountAction),
    /// As in [`Command`].
    Context(ContextAction),
    /// As in [`Command`].
    Provider(ProviderAction),
    /// As in [`Command`].
    Secret(SecretAction),
    /// See [`Command::Login`].
    Login(LoginAction),
    /// As in [`Command`].
    Harness(HarnessAction),
    /// As in [`Command`].
    Image(ImageAction),
    /// As in [`Command`].
    Build(BuildAction),
    /// As in [`Command`].
    Network(NetworkAction),
    /// As in [`Command`].
    Audit(AuditArgs),
    /// As in [`Command`].
    Folder(FolderAction),
    /// As in [`Command`].
    Knowledge(KnowledgeAction),
    /// As in [`Command`].
    Cache(CacheAction),
    /// As in [`Command`].
    Doctor {
        /// As in [`Command`].
        verbose: bool,
    },
    /// As in [`Command`].
    Setup(SetupArgs),
    /// As in [`Command`].
    Uninstall(UninstallArgs),
    /// As in [`Command`].
    Status,
    /// As in [`Command`].
    Daemon(DaemonAction),
    /// As in [`Command`].
    Completions(Shell),
    /// As in [`Command`].
    Man(PathBuf),
}

/// What the program should become instead.
#[derive(Debug)]
pub enum Program {
    /// The daemon.
    Serve(ServeArgs),
    /// The filter.
    Egress(EgressArgs),
    /// A reader of one repository.
    ReadGit(Vec<String>),
    /// A scripted model.
    ScriptedModel(ScriptedArgs),
    /// The demo.
    Demo(DemoArgs),
    /// The API's description.
    Openapi,
    /// The reference page.
    Reference,
}

/// Either.
#[derive(Debug)]
pub enum Parsed {
    /// A client command.
    Client(Action),
    /// A program.
    Program(Program),
}

impl Command {
    /// Sorts client commands from programs.
    #[must_use]
    pub fn split(self) -> Parsed {
        let action = match self {
            Self::Serve(args) => return Parsed::Program(Program::Serve(args)),
            Self::Egress(args) => return Parsed::Program(Program::Egress(args)),
            Self::ReadGit { asked } => return Parsed::Program(Program::ReadGit(asked)),
            Self::ScriptedModel(args) => return Parsed::Program(Program::ScriptedModel(args)),
            Self::Demo(args) => return Parsed::Program(Program::Demo(args)),
            Self::Openapi => return Parsed::Program(Program::Openapi),
            Self::Reference => return Parsed::Program(Program::Reference),
            Self::Run(args) => Action::Run(args),
            Self::Attach(args) => Action::Attach(args),
            Self::Acp(args) => Action::Acp(args),
            Self::Terminal(args) => Action::Terminal(args),
            Self::Shell(args) => Action::Shell(args),
            Self::Session(action) => Action::Session(action),
            Self::Project(action) => Action::Project(action),
            Self::Agent(action) => Action::Agent(action),
            Self::Sandbox(action) => Action::Sandbox(action),
            Self::Fork(action) => Action::Fork(action),
            Self::Ssh(args) => Action::Ssh(args),
            Self::SshConfig { write } => Action::SshConfig { write },
            Self::SshProxy { sandbox } => Action::SshProxy(sandbox),
            Self::Preset(action) => Action::Preset(action),
            Self::QuickFile(action) => Action::QuickFile(action),
            Self::Account(action) => Action::Account(action),
            Self::Context(action) => Action::Context(action),
            Self::Provider(action) => Action::Provider(action),
            Self::Secret(action) => Action::Secret(action),
            Self::Login(action) => Action::Login(action),
            Self::Harness(action) => Action::Harness(action),
            Self::Image(action) => Action::Image(action),
            Self::Build(action) => Action::Build(action),
            Self::Network(action) => Action::Network(action),
            Self::Audit(args) => Action::Audit(args),
            Self::Folder(action) => Action::Folder(action),
            Self::Knowledge(action) => Action::Knowledge(action),
            Self::Cache(action) => Action::Cache(action),
            Self::Doctor { verbose } => Action::Doctor { verbose },
            Self::Setup(args) => Action::Setup(args),
            Self::Uninstall(args) => Action::Uninstall(args),
            Self::Status => Action::Status,
            Self::Daemon(action) => Action::Daemon(action),
            Self::Completions { shell } => Action::Completions(shell),
            Self::Man { folder } => Action::Man(folder),
        };
        Parsed::Client(action)
    }
}
