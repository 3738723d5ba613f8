//! `handler network`: see what a sandbox, session or agent may reach and asks for, and change it entry by entry.

use super::Outcome;
use super::network::describe;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::{Out, printable};
use clap::{Args, Subcommand};
use handler_client::{Client, ClientError};
use handler_types::ProblemCode;
use handler_types::agent::AgentView;
use handler_types::egress::EgressDecision;
use handler_types::event::ServerEvent;
use handler_types::learn::{EnforcementRequest, EntriesRequest, LearnView, LearnedHost};
use handler_types::network::{AllowEntry, Enforcement, NetworkPolicy};
use handler_types::sandbox::SandboxView;
use handler_types::session::SessionView;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// Between two looks of `--watch`, when much happens.
const PAUSE: Duration = Duration::from_millis(250);

/// Subcommands of `handler network`.
#[derive(Debug, Subcommand)]
pub enum NetworkAction {
    /// Show what it may reach
    Show {
        /// The sandbox, session or agent: name, id or the beginning of one
        target: String,
    },
    /// Show what it asked for, each destination once, and the entry that would allow it
    Learn(LearnArgs),
    /// Refuse what is not on its list
    Enforce {
        /// The sandbox, session or agent
        target: String,
    },
    /// Let everything through and tell what is not on its list
    LogOnly {
        /// The sandbox, session or agent
        target: String,
    },
    /// Put destinations on its list, live
    Allow(AllowArgs),
    /// Take destinations off its list, live; tunnels that they allowed are closed
    Block {
        /// The sandbox, session or agent
        target: String,
        /// Entries as they are listed
        #[arg(required = true, value_name = "HOST:PORT")]
        entries: Vec<AllowEntry>,
    },
}

/// `handler network learn`.
#[derive(Debug, Args)]
pub struct LearnArgs {
    /// The sandbox or session
    pub target: String,
    /// Go on with what is new as it comes
    #[arg(long, short)]
    pub watch: bool,
    /// Only what is not on the list and could be
    #[arg(long)]
    pub missing: bool,
}

/// `handler network allow`.
#[derive(Debug, Args)]
pub struct AllowArgs {
    /// The sandbox, session or agent
    pub target: String,
    /// Entries, e.g. `example.com:443` or `*.example.com:443`
    #[arg(required_unless_present = "learned", value_name = "HOST:PORT")]
    pub entries: Vec<AllowEntry>,
    /// Everything that `network learn --missing` shows
    #[arg(long, conflicts_with = "entries")]
    pub learned: bool,
}

/// A sandbox, a session (its list counts for its later starts too), or an agent (its list counts for all its sessions).
enum Target {
    Sandbox(Box<SandboxView>),
    Session(Box<SessionView>),
    Agent(Box<AgentView>),
}

/// What a change gave.
#[derive(Serialize)]
#[serde(untagged)]
enum Changed {
    Sandbox(Box<SandboxView>),
    Session(Box<SessionView>),
    Agent(Box<AgentView>),
}

impl Target {
    async fn find(client: &Client, text: &str) -> Result<Self, Failure> {
        match client.sandbox(text).await {
            Ok(view) => return Ok(Self::Sandbox(Box::new(view))),
            Err(error) if !is_unknown(&error) => return Err(error.into()),
            Err(_) => {}
        }
        match client.session(text).await {
            Ok(view) => return Ok(Self::Session(Box::new(view))),
            Err(error) if !is_unknown(&error) => return Err(error.into()),
            Err(_) => {}
        }
        match client.agent(text).await {
            Ok(view) => Ok(Self::Agent(Box::new(view))),
            Err(ClientError::Refused(mut problem)) if problem.code == ProblemCode::NotFound => {
                let shown: String = text.chars().take(80).collect();
                problem.detail = format!("there is no sandbox, session or agent `{shown}`");
                Err(ClientError::Refused(problem).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn network(&self) -> &NetworkPolicy {
        match self {
            Self::Sandbox(view) => &view.network,
            Self::Session(view) => &view.network,
            Self::Agent(view) => &view.network,
        }
    }

    async fn learn(&self, client: &Client) -> Result<LearnView, Failure> {
        match self {
            Self::Sandbox(view) => Ok(client.network_learn(view.id.as_str()).await?),
            Self::Session(view) => Ok(client.session_learn(view.id.as_str()).await?),
            Self::Agent(_) => Err(Failure::Usage(
                "an agent's sessions ask for hosts: name one of them (`handler session list`)"
                    .into(),
            )),
        }
    }

    async fn allow(&self, client: &Client, entries: Vec<AllowEntry>) -> Result<Changed, Failure> {
        let request = EntriesRequest { entries };
        Ok(match self {
            Self::Sandbox(v) => Changed::from(client.network_allow(v.id.as_str(), &request).await?),
            Self::Session(v) => Changed::from(client.session_allow(v.id.as_str(), &request).await?),
            Self::Agent(v) => Changed::from(client.agent_allow(v.id.as_str(), &request).await?),
        })
    }

    async fn block(&self, client: &Client, entries: Vec<AllowEntry>) -> Result<Changed, Failure> {
        let request = EntriesRequest { entries };
        Ok(match self {
            Self::Sandbox(v) => Changed::from(client.network_block(v.id.as_str(), &request).await?),
            Self::Session(v) => Changed::from(client.session_block(v.id.as_str(), &request).await?),
            Self::Agent(v) => Changed::from(client.agent_block(v.id.as_str(), &request).await?),
        })
    }

    async fn enforce(&self, client: &Client, enforcement: Enforcement) -> Result<Changed, Failure> {
        let request = EnforcementRequest { enforcement };
        Ok(match self {
            Self::Sandbox(v) => {
                Changed::from(client.network_enforcement(v.id.as_str(), &request).await?)
            }
            Self::Session(v) => {
                Changed::from(client.session_enforcement(v.id.as_str(), &request).await?)
            }
            Self::Agent(v) => {
                Changed::from(client.agent_enforcement(v.id.as_str(), &request).await?)
            }
        })
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(problem) if problem.code == ProblemCode::NotFound)
}

impl From<SandboxView> for Changed {
    fn from(view: SandboxView) -> Self {
        Self::Sandbox(Box::new(view))
    }
}

impl From<SessionView> for Changed {
    fn from(view: SessionView) -> Self {
        Self::Session(Box::new(view))
    }
}

impl From<AgentView> for Changed {
    fn from(view: AgentView) -> Self {
        Self::Agent(Box::new(view))
    }
}

impl Changed {
    fn network(&self) -> &NetworkPolicy {
        match self {
            Self::Sandbox(view) => &view.network,
            Self::Session(view) => &view.network,
            Self::Agent(view) => &view.network,
        }
    }
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: NetworkAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    let changed = match action {
        NetworkAction::Show { target } => {
            let target = Target::find(&client, &target).await?;
            out.show(target.network(), show_policy);
            return Ok(0);
        }
        NetworkAction::Learn(args) => return learn(args, context).await,
        NetworkAction::Enforce { target } => {
            let target = Target::find(&client, &target).await?;
            target.enforce(&client, Enforcement::Enforce).await?
        }
        NetworkAction::LogOnly { target } => {
            let target = Target::find(&client, &target).await?;
            target.enforce(&client, Enforcement::LogOnly).await?
        }
        NetworkAction::Allow(args) => {
            let target = Target::find(&client, &args.target).await?;
            let entries = match args.learned {
                true => learned_entries(&target, &client, out).await?,
                false => args.entries,
            };
            target.allow(&client, entries).await?
        }
        NetworkAction::Block { target, entries } => {
            let target = Target::find(&client, &target).await?;
            target.block(&client, entries).await?
        }
    };
    out.show(&changed, |out, changed| show_policy(out, changed.network()));
    Ok(0)
}

async fn learned_entries(
    target: &Target,
    client: &Client,
    out: &Out,
) -> Result<Vec<AllowEntry>, Failure> {
    let view = target.learn(client).await?;
    let entries: Vec<AllowEntry> = view
        .hosts
        .into_iter()
        .filter_map(|host| host.entry)
        .collect();
    for entry in &entries {
        out.note(format!("allow {entry}"));
    }
    if entries.is_empty() {
        out.note("nothing was asked for that is not on the list");
    }
    Ok(entries)
}

fn show_policy(out: &Out, policy: &NetworkPolicy) {
    let NetworkPolicy::Filtered { allow, enforcement } = policy else {
        out.line(describe(policy));
        return;
    };
    out.line(match enforcement {
        Enforcement::Enforce => "filtered: only what is listed passes",
        Enforcement::LogOnly => "log-only: everything passes, what is not listed is told",
    });
    for entry in allow {
        out.line(format!("  {entry}"));
    }
}

async fn learn(args: LearnArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    let target = Target::find(&client, &args.target).await?;
    if matches!(target.network(), NetworkPolicy::None) {
        out.note("its network is `none`: it can ask for nothing; give it `filtered` to learn what it needs");
    }
    // Subscribed first, so that nothing falls between.
    let events = match args.watch {
        true => Some(client.events().await?),
        false => None,
    };
    let mut view = target.learn(&client).await?;
    if args.missing {
        view.hosts.retain(|host| host.entry.is_some());
    }
    let Some(mut events) = events else {
        out.show(&view, show_learned);
        return Ok(0);
    };
    let mut told = HashMap::new();
    tell(out, &view, args.missing, &mut told);
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(0),
        };
        match event {
            None => return Err(Failure::Failed("the daemon has ended".into())),
            Some(ServerEvent::SandboxRemoved { id }) if id == view.sandbox.as_str() => {
                return Ok(0);
            }
            Some(ServerEvent::Egress { event }) if event.sandbox == view.sandbox.as_str() => {
                if event.decision != EgressDecision::Ended {
                    tokio::time::sleep(PAUSE).await;
                    let now = target.learn(&client).await?;
                    tell(out, &now, args.missing, &mut told);
                }
            }
            Some(_) => {}
        }
    }
}

/// Prints destinations that are new, or decided in another way than when they were printed.
fn tell(
    out: &Out,
    view: &LearnView,
    missing: bool,
    told: &mut HashMap<String, (EgressDecision, bool)>,
) {
    for host in view.hosts.iter().rev() {
        let state = (host.decision, host.listed);
        let is_wanted = !missing || host.entry.is_some();
        if !is_wanted || told.insert(host.host.clone(), state) == Some(state) {
            continue;
        }
        if out.json {
            out.line(serde_json::to_string(host).unwrap_or_default());
        } else {
            let cells: Vec<String> = row(host).iter().map(|cell| printable(cell)).collect();
            out.line(cells.join("  "));
        }
    }
}

fn show_learned(out: &Out, view: &LearnView) {
    let rows: Vec<Vec<String>> = view.hosts.iter().map(row).collect();
    out.table(
        &["HOST", "DECISION", "COUNT", "LAST SEEN", "TO ALLOW IT"],
        &rows,
    );
    if view.forgotten > 0 {
        out.note(format!("{} older ones were forgotten", view.forgotten));
    }
    if view.hosts.iter().any(|host| host.entry.is_some()) {
        out.note("`handler network allow` puts entries on the list");
    }
}

fn row(host: &LearnedHost) -> Vec<String> {
    let advice = match (&host.entry, host.listed, host.reason.as_deref()) {
        (Some(entry), ..) => entry.to_string(),
        (None, true, _) => "listed".to_owned(),
        (None, false, Some(reason)) => format!("no entry can ({reason})"),
        (None, false, None) => String::new(),
    };
    vec![
        host.host.clone(),
        host.decision.as_str().to_owned(),
        host.count.to_string(),
        handler_base::clock::rfc3339(host.last_seen),
        advice,
    ]
}
