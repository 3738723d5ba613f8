//! `handler sandbox`.

use super::containers::{self, ContainerArgs};
use super::network::{NetworkArgs, describe};
use super::{Outcome, absolute, copy, exec, files, lifetime, observe, paths, ports, terminal};
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use handler_client::Client;
use handler_types::api::{NetworkUpdate, SignalRequest};
use handler_types::network::AllowEntry;
use handler_types::sandbox::{CreateSandbox, MountSpec, Resources, SandboxView, SecretGrant};
use std::collections::BTreeMap;

/// What to do with sandboxes. A sandbox is named by its name, its id or the beginning of its id.
#[derive(Debug, Subcommand)]
pub enum SandboxAction {
    /// Make a sandbox and wait until it runs
    Up(Box<UpArgs>),
    /// List sandboxes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one
    Show {
        /// The sandbox
        sandbox: String,
    },
    /// Run a command; its exit code becomes this command's
    Exec(exec::ExecArgs),
    /// Open a shell in it; let go of it with Ctrl-] d, and it goes on
    Shell {
        /// The sandbox
        sandbox: String,
        #[command(flatten)]
        open: terminal::OpenArgs,
    },
    /// Come back to one of its terminals, or look at it
    Attach(terminal::AttachTerminalArgs),
    /// List its terminals
    Terminals {
        /// The sandbox
        sandbox: String,
    },
    /// Print what is on one of its terminals
    Screen(terminal::ScreenArgs),
    /// Close terminals: what runs on them is killed
    Close {
        /// The sandbox
        sandbox: String,
        /// The terminals' numbers
        #[arg(required = true)]
        terminals: Vec<u32>,
    },
    /// List the tmux sessions inside it
    Tmux {
        /// The sandbox
        sandbox: String,
    },
    /// Follow a process started with `exec --detach`
    Follow {
        /// The sandbox
        sandbox: String,
        /// The process's number
        process: u32,
    },
    /// List processes started in it
    Ps {
        /// The sandbox
        sandbox: String,
    },
    /// Send a signal to a process and all it started
    Kill {
        /// The sandbox
        sandbox: String,
        /// The process's number
        process: u32,
        /// Signal number
        #[arg(long, short, default_value_t = 9)]
        signal: i32,
    },
    /// Copy a file or a folder in or out: one side is SANDBOX:PATH
    ///
    /// A folder goes into one that exists, under its name; with `/.` behind it, what it holds.
    Cp {
        /// From
        from: String,
        /// To
        to: String,
    },
    /// List a folder of it
    Files {
        /// SANDBOX:PATH
        at: String,
        /// How deep
        #[arg(long, default_value_t = 1)]
        depth: u32,
    },
    #[command(flatten)]
    Path(paths::PathAction),
    /// Print what a process has said so far
    Output {
        /// The sandbox
        sandbox: String,
        /// The process's number
        process: u32,
        /// Go on until it ends
        #[arg(long, short)]
        follow: bool,
    },
    /// Change what it may reach, live
    Network {
        /// The sandbox
        sandbox: String,
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Show what the egress filter decided
    Egress {
        /// The sandbox
        sandbox: String,
    },
    /// Look at the Git repository in it
    #[command(subcommand)]
    Git(super::git::GitAction),
    /// Print its log: life, commands, terminals, refusals of the filter
    Logs(observe::LogsArgs),
    /// Show what it uses, now or over the last half hour
    Metrics(observe::MetricsArgs),
    /// Show which agents it has and runs
    Agents {
        /// The sandbox
        sandbox: String,
    },
    /// Show what its terminals and sessions do, and why that is said
    Activity(observe::ActivityArgs),
    /// Show what all running sandboxes use, the busiest first
    Top(observe::TopArgs),
    /// List the ports on which something listens in it, and those that are forwarded
    Ports {
        /// The sandbox
        sandbox: String,
    },
    /// Forward ports of this machine to it, until interrupted
    Forward(ports::ForwardArgs),
    /// Open what listens on a port of it in a browser
    Open(ports::OpenArgs),
    /// Connect our input and output to a port of it
    Connect {
        /// The sandbox
        sandbox: String,
        /// The port inside
        port: u16,
    },
    /// Start a stopped sandbox
    Start {
        /// The sandbox
        sandbox: String,
    },
    /// Stop it; its home is kept
    Stop {
        /// The sandbox
        sandbox: String,
    },
    /// Stop it and start it again
    Restart {
        /// The sandbox
        sandbox: String,
    },
    /// Freeze all its processes: no CPU time, memory kept
    Pause {
        /// The sandbox
        sandbox: String,
    },
    /// Let a paused one go on
    Resume {
        /// The sandbox
        sandbox: String,
    },
    /// Change its name, labels, data, time to live, idle policy or limits
    Set(Box<lifetime::SetArgs>),
    /// Remove it with everything in it
    Down {
        /// The sandboxes
        #[arg(required = true)]
        sandboxes: Vec<String>,
    },
}

/// `handler sandbox list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those with this text in their name, id, project folder or image
    pub search: Option<String>,
    /// Only those in this state, e.g. `running`
    #[arg(long)]
    pub state: Option<String>,
    /// Only those of this backend
    #[arg(long)]
    pub backend: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Option<String>,
    /// Only those that count for this project
    #[arg(long)]
    pub project: Option<String>,
}

impl ListArgs {
    /// The query, from a page on.
    fn query<'a>(&'a self, cursor: &'a str) -> Vec<(&'static str, &'a str)> {
        let flags = [
            ("search", &self.search),
            ("state", &self.state),
            ("backend", &self.backend),
            ("label", &self.label),
            ("project", &self.project),
        ];
        flags
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .chain([("cursor", cursor), ("limit", "500")])
            .collect()
    }
}

/// `handler sandbox up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Project folder, shown read-write at the same path (default: the current folder)
    #[arg(long)]
    pub folder: Option<String>,
    /// No project folder
    #[arg(long, conflicts_with = "folder")]
    pub no_folder: bool,
    /// A name
    #[arg(long)]
    pub name: Option<String>,
    /// Backend
    #[arg(long)]
    pub backend: Option<String>,
    /// Another folder: SOURCE:TARGET, or SOURCE:TARGET:ro (repeatable)
    #[arg(long, value_name = "SOURCE:TARGET[:ro]")]
    pub mount: Vec<String>,
    /// A variable: NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// A stored secret as a phantom: NAME=SECRET@HOST:PORT[,HOST:PORT] (repeatable)
    #[arg(long, value_name = "NAME=SECRET@HOST:PORT")]
    pub secret: Vec<String>,
    /// A stored login with stand-ins for its tokens, as a file inside: NAME=PATH (repeatable)
    #[arg(long, value_name = "NAME=PATH")]
    pub login: Vec<String>,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u64>,
    /// CPUs, e.g. 1.5
    #[arg(long)]
    pub cpus: Option<f64>,
    /// Most processes and threads
    #[arg(long)]
    pub pids: Option<u64>,
    /// Take it even when a limit cannot be enforced here
    #[arg(long)]
    pub best_effort_limits: bool,
    /// A label: KEY=VALUE (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    #[command(flatten)]
    pub container: ContainerArgs,
    /// The project it counts for, for quotas
    #[arg(long)]
    pub project: Option<String>,
    #[command(flatten)]
    pub life: lifetime::LifeArgs,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
#[expect(clippy::too_many_lines, reason = "one arm for each verb")]
pub async fn run(action: SandboxAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        SandboxAction::Up(mut args) => {
            let container = std::mem::take(&mut args.container);
            let mut wanted = request(*args)?;
            containers::apply(container, &mut wanted)?;
            let view = client.create_sandbox(&wanted).await?;
            out.show(&view, |out, view| {
                out.line(&view.name);
                for warning in &view.warnings {
                    out.note(format!("warning: {warning}"));
                }
            });
        }
        SandboxAction::List(args) => list(&client, &args, context).await?,
        SandboxAction::Show { sandbox } => out.document(&client.sandbox(&sandbox).await?),
        SandboxAction::Exec(args) => return exec::run(args, context).await,
        SandboxAction::Shell { sandbox, open } => {
            return terminal::open(&sandbox, open, context).await;
        }
        SandboxAction::Attach(args) => return terminal::attach(args, context).await,
        SandboxAction::Terminals { sandbox } => return terminal::list(&sandbox, context).await,
        SandboxAction::Screen(args) => return terminal::screen(args, context).await,
        SandboxAction::Close { sandbox, terminals } => {
            return terminal::close(&sandbox, &terminals, context).await;
        }
        SandboxAction::Tmux { sandbox } => return terminal::tmux(&sandbox, context).await,
        SandboxAction::Follow { sandbox, process } => {
            return exec::attach(&sandbox, process, context).await;
        }
        SandboxAction::Ps { sandbox } => processes(&client, &sandbox, context).await?,
        SandboxAction::Kill {
            sandbox,
            process,
            signal,
        } => {
            client
                .signal(&sandbox, process, &SignalRequest { signal, tree: true })
                .await?;
        }
        SandboxAction::Cp { from, to } => return copy::copy(&from, &to, context).await,
        SandboxAction::Path(action) => return paths::run(action, context).await,
        SandboxAction::Output {
            sandbox,
            process,
            follow,
        } => return exec::logs(&sandbox, process, follow, context).await,
        SandboxAction::Files { at, depth } => return files::list(&at, depth, context).await,
        SandboxAction::Network { sandbox, network } => {
            let Some(network) = network.policy()? else {
                let view = client.sandbox(&sandbox).await?;
                out.show(&view.network, |out, network| out.line(describe(network)));
                return Ok(0);
            };
            let view = client
                .set_network(&sandbox, &NetworkUpdate { network })
                .await?;
            out.show(&view.network, |out, network| out.line(describe(network)));
        }
        SandboxAction::Egress { sandbox } => egress(&client, &sandbox, context).await?,
        SandboxAction::Git(action) => return super::git::run(action, context).await,
        SandboxAction::Logs(args) => return observe::logs(args, context).await,
        SandboxAction::Metrics(args) => return observe::metrics(args, context).await,
        SandboxAction::Agents { sandbox } => return observe::agents(&sandbox, context).await,
        SandboxAction::Activity(args) => return observe::activity(args, context).await,
        SandboxAction::Top(args) => return observe::top(args, context).await,
        SandboxAction::Ports { sandbox } => return ports::list(&sandbox, context).await,
        SandboxAction::Forward(args) => return ports::forward(args, context).await,
        SandboxAction::Open(args) => return ports::open(args, context).await,
        SandboxAction::Connect { sandbox, port } => {
            return ports::connect(&sandbox, port, context).await;
        }
        SandboxAction::Start { sandbox } => {
            let view = client.start_sandbox(&sandbox).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        SandboxAction::Stop { sandbox } => {
            let view = client.stop_sandbox(&sandbox).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        SandboxAction::Restart { sandbox } => {
            let view = client.restart_sandbox(&sandbox).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        SandboxAction::Pause { sandbox } => {
            let view = client.pause_sandbox(&sandbox).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        SandboxAction::Resume { sandbox } => {
            let view = client.resume_sandbox(&sandbox).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        SandboxAction::Set(args) => return lifetime::set(*args, context).await,
        SandboxAction::Down { sandboxes } => {
            for sandbox in sandboxes {
                client.delete_sandbox(&sandbox).await?;
                out.note(format!("removed {sandbox}"));
            }
        }
    }
    Ok(0)
}

async fn list(client: &Client, args: &ListArgs, context: &Context) -> Result<(), Failure> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.find_sandboxes(&args.query(&cursor)).await?;
        items.extend(page.items);
        let Some(next) = page.next_cursor else { break };
        cursor = next;
    }
    context.out.show(&items, |out, items| {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        out.table(&["ID", "NAME", "STATE", "LEFT", "NETWORK", "FOLDER"], &rows);
    });
    Ok(())
}

async fn processes(client: &Client, sandbox: &str, context: &Context) -> Result<(), Failure> {
    let processes = client.processes(sandbox).await?;
    context.out.show(&processes, |out, processes| {
        let rows: Vec<Vec<String>> = processes
            .iter()
            .map(|p| {
                let state = p
                    .exit
                    .map_or("running".into(), |e| format!("exited {}", e.code));
                let kind = if p.tty.is_some() {
                    "terminal"
                } else {
                    "process"
                };
                vec![p.process.to_string(), kind.into(), state, p.argv.join(" ")]
            })
            .collect();
        out.table(&["NUMBER", "KIND", "STATE", "COMMAND"], &rows);
    });
    Ok(())
}

async fn egress(client: &Client, sandbox: &str, context: &Context) -> Result<(), Failure> {
    let events = client.sandbox_egress(sandbox).await?;
    context.out.show(&events, |out, events| {
        let rows: Vec<Vec<String>> = events
            .iter()
            .map(|e| {
                let decision = e.decision.as_str().to_owned();
                let why = e.secret.clone().or_else(|| e.reason.clone());
                vec![decision, e.host.clone(), why.unwrap_or_default()]
            })
            .collect();
        out.table(&["DECISION", "HOST", "WHY"], &rows);
    });
    Ok(())
}

fn row(view: &SandboxView) -> Vec<String> {
    let folder = view.scope.clone().unwrap_or_default();
    vec![
        view.id.to_string(),
        view.name.clone(),
        lifetime::state(view),
        lifetime::time_left(view),
        describe(&view.network),
        folder,
    ]
}

fn request(args: UpArgs) -> Result<CreateSandbox, Failure> {
    let scope = match (&args.folder, args.no_folder) {
        (Some(folder), _) => Some(absolute(folder)?),
        (None, true) => None,
        (None, false) => Some(super::current_folder()?),
    };
    let mut request = CreateSandbox {
        backend: args.backend,
        name: args.name,
        scope,
        mounts: args
            .mount
            .iter()
            .map(|m| mount(m))
            .collect::<Result<_, _>>()?,
        env: pairs(&args.env, "--env")?,
        network: args.network.policy()?,
        resources: Resources {
            memory_mib: args.memory,
            cpus: args.cpus,
            pids: args.pids,
        },
        best_effort_limits: args.best_effort_limits,
        labels: pairs(&args.label, "--label")?,
        project: args.project,
        secrets: args
            .secret
            .iter()
            .map(|s| grant(s))
            .collect::<Result<_, _>>()?,
        logins: super::login::grants(&args.login)?,
        ..CreateSandbox::default()
    };
    lifetime::apply(&args.life, &mut request)?;
    Ok(request)
}

pub(super) fn pairs(given: &[String], flag: &str) -> Result<BTreeMap<String, String>, Failure> {
    given
        .iter()
        .map(|pair| {
            pair.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .ok_or_else(|| Failure::Usage(format!("{flag} {pair}: write NAME=VALUE")))
        })
        .collect()
}

pub(super) fn mount(text: &str) -> Result<MountSpec, Failure> {
    let (text, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (source, target) = text.split_once(':').ok_or_else(|| {
        Failure::Usage(format!(
            "--mount {text}: write SOURCE:TARGET or SOURCE:TARGET:ro"
        ))
    })?;
    Ok(MountSpec {
        source: absolute(source)?,
        target: target.to_owned(),
        read_only,
    })
}

pub(super) fn grant(text: &str) -> Result<(String, SecretGrant), Failure> {
    let wrong = || Failure::Usage(format!("--secret {text}: write NAME=SECRET@HOST:PORT"));
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (secret, hosts) = rest.split_once('@').ok_or_else(wrong)?;
    let hosts = hosts
        .split(',')
        .map(str::parse::<AllowEntry>)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Failure::Usage(format!("--secret {text}: {e}")))?;
    Ok((
        name.to_owned(),
        SecretGrant {
            secret: secret.to_owned(),
            hosts,
        },
    ))
}
