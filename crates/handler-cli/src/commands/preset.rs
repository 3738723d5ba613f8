//! `handler preset` and `handler quick-file`.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use handler_types::preset::{Preset, QuickFile};
use std::io::Read as _;

/// What to do with environment presets: requests for sandboxes with their blanks filled in.
#[derive(Debug, Subcommand)]
pub enum PresetAction {
    /// List them
    #[command(visible_alias = "ls")]
    List,
    /// Show one as JSON
    Show {
        /// Its name
        name: String,
    },
    /// Make or replace one from JSON as `show` prints it
    Set {
        /// Its name
        name: String,
        /// File with the JSON (default: standard input)
        file: Option<String>,
    },
    /// Remove one
    Rm {
        /// Its name
        name: String,
    },
}

/// What to do with quick files: small files put into every new sandbox, or by hand.
#[derive(Debug, Subcommand)]
pub enum QuickFileAction {
    /// List them
    #[command(visible_alias = "ls")]
    List,
    /// Show one as JSON; a sensitive one without its text
    Show {
        /// Its name
        name: String,
    },
    /// Make or replace one
    Set(SetArgs),
    /// Put one into a running sandbox
    Copy {
        /// Its name
        name: String,
        /// The sandbox
        sandbox: String,
    },
    /// Remove one
    Rm {
        /// Its name
        name: String,
    },
}

/// `handler quick-file set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Its name
    pub name: String,
    /// Where it goes: absolute, or `~/…` for the sandbox's home
    pub path: String,
    /// File with the text (default: standard input)
    pub file: Option<String>,
    /// Put it into every new sandbox
    #[arg(long)]
    pub default: bool,
    /// Keep its text sealed and never show it
    #[arg(long)]
    pub sensitive: bool,
    /// Permission bits, octal
    #[arg(long)]
    pub mode: Option<String>,
    /// For people
    #[arg(long)]
    pub description: Option<String>,
}

/// Runs `handler preset`.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: PresetAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        PresetAction::List => {
            let all = client.presets().await?;
            out.show(&all, |out, all| {
                let rows: Vec<Vec<String>> = all
                    .iter()
                    .map(|view| {
                        let preset = view.preset.as_ref();
                        let text = |value: Option<&String>| value.cloned().unwrap_or_default();
                        vec![
                            view.name.clone(),
                            text(preset.and_then(|p| p.sandbox.backend.as_ref())),
                            text(preset.and_then(|p| p.sandbox.image.as_ref())),
                            match preset {
                                Some(preset) => text(preset.description.as_ref()),
                                None => view.problems.join("; "),
                            },
                        ]
                    })
                    .collect();
                out.table(&["PRESET", "BACKEND", "IMAGE", "DESCRIPTION"], &rows);
            });
        }
        PresetAction::Show { name } => out.document(&client.preset(&name).await?),
        PresetAction::Set { name, file } => {
            let text = read(file.as_deref())?;
            let preset: Preset = serde_json::from_str(&text)
                .map_err(|error| Failure::Usage(format!("this is no preset: {error}")))?;
            let view = client.put_preset(&name, &preset).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        PresetAction::Rm { name } => {
            client.delete_preset(&name).await?;
            out.note(format!("removed {name}"));
        }
    }
    Ok(0)
}

/// Runs `handler quick-file`.
///
/// # Errors
/// [`Failure`].
pub async fn run_files(action: QuickFileAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        QuickFileAction::List => {
            let all = client.quick_files().await?;
            out.show(&all, |out, all| {
                let rows: Vec<Vec<String>> = all
                    .iter()
                    .map(|view| {
                        let file = view.file.as_ref();
                        let flag = |is: Option<bool>, word: &str| {
                            if is == Some(true) {
                                word.to_owned()
                            } else {
                                String::new()
                            }
                        };
                        vec![
                            view.name.clone(),
                            file.map_or_else(|| view.problems.join("; "), |f| f.path.clone()),
                            flag(file.map(|f| f.default), "every new sandbox"),
                            flag(file.map(|f| f.sensitive), "sealed"),
                        ]
                    })
                    .collect();
                out.table(&["NAME", "PATH", "DEFAULT", "SENSITIVE"], &rows);
            });
        }
        QuickFileAction::Show { name } => out.document(&client.quick_file(&name).await?),
        QuickFileAction::Set(args) => {
            let file = QuickFile {
                path: args.path,
                content: Some(read(args.file.as_deref())?),
                mode: args.mode,
                default: args.default,
                sensitive: args.sensitive,
                description: args.description,
            };
            let view = client.put_quick_file(&args.name, &file).await?;
            out.show(&view, |out, view| out.line(&view.name));
        }
        QuickFileAction::Copy { name, sandbox } => {
            client.copy_quick_file(&name, &sandbox).await?;
            out.note(format!("{name} is in {sandbox}"));
        }
        QuickFileAction::Rm { name } => {
            client.delete_quick_file(&name).await?;
            out.note(format!("removed {name}"));
        }
    }
    Ok(0)
}

/// A file's text, or standard input to its end; at most 1 MiB.
fn read(file: Option<&str>) -> Result<String, Failure> {
    let name = file.unwrap_or("standard input");
    let wrap = |error| Failure::local(format!("cannot read {name}"), error);
    let mut text = String::new();
    match file {
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(1 << 20).read_to_string(&mut text))
        }
        None => std::io::stdin()
            .lock()
            .take(1 << 20)
            .read_to_string(&mut text),
    }
    .map_err(wrap)?;
    Ok(text)
}
