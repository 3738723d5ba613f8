//! `handler context`: what projects are for.

use super::Outcome;
use crate::context::Context;
use clap::{Subcommand, ValueEnum};
use handler_types::context::{ContextColor, ContextRequest, ContextView};

/// What to do with contexts. A project with one runs only the accounts and providers made for it, or for any.
#[derive(Debug, Subcommand)]
pub enum ContextAction {
    /// List contexts and what is in them
    #[command(visible_alias = "ls")]
    List,
    /// Make a context, or give one another colour
    Add {
        /// Its name, e.g. `Work`
        name: String,
        /// Its colour in lists (default: the first that no other has)
        #[arg(long, value_enum)]
        color: Option<Color>,
    },
    /// Remove contexts that nothing is in
    Rm {
        /// The contexts
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// Blue
    Blue,
    /// Violet
    Violet,
    /// Cyan
    Cyan,
    /// Pink
    Pink,
    /// Slate
    Slate,
}

impl From<Color> for ContextColor {
    fn from(typed: Color) -> Self {
        match typed {
            Color::Blue => Self::Blue,
            Color::Violet => Self::Violet,
            Color::Cyan => Self::Cyan,
            Color::Pink => Self::Pink,
            Color::Slate => Self::Slate,
        }
    }
}

/// Runs it.
///
/// # Errors
/// [`crate::Failure`].
pub async fn run(action: ContextAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        ContextAction::List => {
            let all = client.contexts().await?;
            context.out.show(&all, |out, all| {
                let rows: Vec<Vec<String>> = all.iter().map(row).collect();
                out.table(
                    &["CONTEXT", "COLOR", "PROJECTS", "ACCOUNTS", "PROVIDERS"],
                    &rows,
                );
            });
        }
        ContextAction::Add { name, color } => {
            let all = client.contexts().await?;
            let known = all.iter().find(|one| one.name == name);
            let color = color.map(Into::into).unwrap_or_else(|| free(&all));
            let request = ContextRequest {
                name: name.clone(),
                color,
            };
            let view = match known {
                Some(_) => client.put_context(&name, &request).await?,
                None => client.create_context(&request).await?,
            };
            context.out.show(&view, |out, view| out.line(&view.name));
        }
        ContextAction::Rm { names } => {
            for name in names {
                client.delete_context(&name).await?;
                context.out.note(format!("removed {name}"));
            }
        }
    }
    Ok(0)
}

/// The first colour that no context has.
fn free(all: &[ContextView]) -> ContextColor {
    let is_free = |color: &ContextColor| !all.iter().any(|one| one.color == *color);
    let colors = ContextColor::ALL;
    colors.into_iter().find(is_free).unwrap_or(colors[0])
}

fn row(context: &ContextView) -> Vec<String> {
    vec![
        context.name.clone(),
        context.color.word().to_owned(),
        context.projects.join(", "),
        context.accounts.join(", "),
        context.providers.join(", "),
    ]
}
