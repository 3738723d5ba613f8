//! `handler project`: folders people work on.

use super::{Outcome, absolute, current_folder};
use crate::context::Context;
use crate::exit::Failure;
use crate::out::Out;
use clap::{Args, Subcommand, ValueEnum};
use handler_client::Client;
use handler_types::project::{CachesChoice, CreateProject, ProjectSettings, ProjectView};

/// What to do with projects. A project is named by its name, its id or the beginning of that.
#[derive(Debug, Subcommand)]
pub enum ProjectAction {
    /// List projects, last used first
    #[command(visible_alias = "ls")]
    List,
    /// Make a project of a folder
    Add(AddArgs),
    /// Show one: the named one, or the one the current folder is in
    Show {
        /// The project
        project: Option<String>,
    },
    /// Change its name, description, folder, default agent, caches or context
    Set(SetArgs),
    /// Remove it with its agents; their sessions are stopped, no folder is touched
    Rm {
        /// The projects
        #[arg(required = true)]
        projects: Vec<String>,
    },
}

/// Whose caches its agents use.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Caches {
    /// The project's own
    Project,
    /// One for every project that chooses so: a way from one project into another
    Global,
    /// None
    Off,
}

impl From<Caches> for CachesChoice {
    fn from(typed: Caches) -> Self {
        match typed {
            Caches::Project => Self::Project,
            Caches::Global => Self::Global,
            Caches::Off => Self::Off,
        }
    }
}

/// `handler project add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The folder (default: the current one)
    pub folder: Option<String>,
    /// A name (default: the folder's)
    #[arg(long)]
    pub name: Option<String>,
    /// For people
    #[arg(long)]
    pub description: Option<String>,
    /// Whose caches its agents use (default: the project's own)
    #[arg(long, value_enum)]
    pub caches: Option<Caches>,
    /// Its context: only accounts and providers made for it, or for any, run in it
    #[arg(long)]
    pub context: Option<String>,
}

/// `handler project set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The project
    pub project: String,
    /// Another name
    #[arg(long)]
    pub name: Option<String>,
    /// For people; an empty text takes it away
    #[arg(long)]
    pub description: Option<String>,
    /// Another folder; sessions that run stay where they are
    #[arg(long)]
    pub folder: Option<String>,
    /// The agent that is used unless another is named: one of the project's, by name or id
    #[arg(long, value_name = "AGENT")]
    pub default: Option<String>,
    /// Whose caches its agents use
    #[arg(long, value_enum)]
    pub caches: Option<Caches>,
    /// Its context; an empty text takes it away
    #[arg(long)]
    pub context: Option<String>,
}

/// The project a folder is in.
pub(super) async fn of_folder(
    client: &Client,
    folder: &str,
) -> Result<Option<ProjectView>, Failure> {
    Ok(client.projects(folder).await?.into_iter().next())
}

/// The folder of the project that a folder is in; the folder itself outside projects.
pub(super) async fn around(client: &Client, folder: &str) -> Result<String, Failure> {
    let project = of_folder(client, folder).await?;
    Ok(project.map_or_else(|| folder.to_owned(), |project| project.folder))
}

/// The named project, or the one the current folder is in.
pub(super) async fn named(client: &Client, name: Option<&str>) -> Result<ProjectView, Failure> {
    if let Some(name) = name {
        return Ok(client.project(name).await?);
    }
    let folder = current_folder()?;
    of_folder(client, &folder).await?.ok_or_else(|| {
        Failure::Usage(format!(
            "{folder} is in no project: name one, or make one with `handler project add`"
        ))
    })
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: ProjectAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        ProjectAction::List => {
            let all = client.projects("").await?;
            out.show(&all, |out, all| {
                let rows: Vec<Vec<String>> = all.iter().map(row).collect();
                out.table(&["PROJECT", "FOLDER", "AGENTS", "LAST USED"], &rows);
            });
        }
        ProjectAction::Add(args) => {
            let folder = match &args.folder {
                Some(folder) => absolute(folder)?,
                None => current_folder()?,
            };
            let request = CreateProject {
                name: args.name,
                description: args.description,
                folder,
                caches: args.caches.map(Into::into).unwrap_or_default(),
                context: args.context,
                agents: Vec::new(),
            };
            let made = client.create_project(&request).await?;
            out.show(&made, |out, made| out.line(&made.name));
            out.note("give it an agent with `handler agent add NAME`");
        }
        ProjectAction::Show { project } => {
            let project = named(&client, project.as_deref()).await?;
            out.show(&project, show);
        }
        ProjectAction::Set(args) => {
            let view = set(args, &client).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        ProjectAction::Rm { projects } => {
            for project in projects {
                client.delete_project(&project).await?;
                out.note(format!("removed {project}"));
            }
        }
    }
    Ok(0)
}

async fn set(args: SetArgs, client: &Client) -> Result<ProjectView, Failure> {
    let before = client.project(&args.project).await?;
    let default_agent = match &args.default {
        None => before.default_agent.clone(),
        Some(name) => {
            let found = before.agents.iter().find(|agent| {
                let own = agent.name.as_deref().unwrap_or_default();
                own.to_lowercase() == name.to_lowercase() || agent.id.as_str() == name
            });
            let found = found.ok_or_else(|| {
                let detail = format!("--default {name}: {} has no such agent", before.name);
                Failure::Usage(detail)
            })?;
            Some(found.id.clone())
        }
    };
    let settings = ProjectSettings {
        name: Some(args.name.unwrap_or(before.name)),
        description: args
            .description
            .or(before.description)
            .filter(|text| !text.is_empty()),
        folder: match &args.folder {
            Some(folder) => absolute(folder)?,
            None => before.folder,
        },
        default_agent,
        caches: args.caches.map_or(before.caches, Into::into),
        context: args
            .context
            .or(before.context)
            .filter(|text| !text.is_empty()),
    };
    Ok(client.put_project(before.id.as_str(), &settings).await?)
}

fn row(project: &ProjectView) -> Vec<String> {
    let agents: Vec<&str> = project
        .agents
        .iter()
        .map(|agent| agent.name.as_deref().unwrap_or_default())
        .collect();
    vec![
        project.name.clone(),
        project.folder.clone(),
        agents.join(", "),
        project.last_used_at.clone().unwrap_or_default(),
    ]
}

fn show(out: &Out, project: &ProjectView) {
    let facts = [
        ("id", Some(project.id.to_string())),
        ("name", Some(project.name.clone())),
        ("folder", Some(project.folder.clone())),
        ("description", project.description.clone()),
        (
            "caches",
            Some(format!("{:?}", project.caches).to_lowercase()),
        ),
        ("context", project.context.clone()),
        ("problem", project.problem.clone()),
    ];
    let rows: Vec<Vec<String>> = facts
        .into_iter()
        .filter_map(|(name, value)| Some(vec![name.to_owned(), value?]))
        .collect();
    out.table(&["PROJECT", ""], &rows);
    let rows: Vec<Vec<String>> = project.agents.iter().map(super::agent::row).collect();
    out.table(super::agent::HEAD, &rows);
}
