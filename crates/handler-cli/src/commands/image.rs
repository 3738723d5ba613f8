//! `handler image`: images of the backends, Handler's own among them.

use super::{Outcome, build, pack};
use crate::context::Context;
use crate::exit::Failure;
use crate::out::printable;
use clap::{Args, Subcommand, ValueEnum};
use handler_types::build::{
    BuildRequest, ContextBuild, ImageUpdates, ImageUpdatesRequest, PullRequest, TagRequest,
    UpdateSchedule,
};
use handler_types::image::ImageView;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What to do with images. An image is named by a name with tag, its id or the beginning of the id.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// List images
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Untagged ones too
        #[arg(long, short)]
        all: bool,
    },
    /// Show one with its configuration
    Inspect {
        /// The image
        image: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Get one from its registry
    Pull {
        /// Its name
        image: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Build one from a folder with a Containerfile
    Build(Box<BuildArgs>),
    /// Give one another name, taking it from whatever had it
    Tag {
        /// The image
        image: String,
        /// Its new name
        name: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Remove a name, and the image with its last one
    Rm {
        /// The images
        #[arg(required = true)]
        images: Vec<String>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Make one from a root file system archive (tar, plain or gzip)
    Import {
        /// The archive; `-`: standard input
        archive: String,
        /// Name of the new image
        name: Option<String>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Rebuild the toolbox or an agent's image, check it, and use it from then on
    Rebuild {
        /// `toolbox`, or the name of a harness
        target: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Rebuild agents' images by themselves: how often, or now
    Updates {
        /// Set how often
        #[arg(value_enum)]
        schedule: Option<Schedule>,
        /// Rebuild all now
        #[arg(long, conflicts_with = "schedule")]
        run: bool,
    },
}

/// Whose images.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// The backend, e.g. podman (default: all, or the first that fits)
    #[arg(long, short)]
    pub backend: Option<String>,
}

/// How often.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Schedule {
    /// Never
    Off,
    /// Once a day
    Daily,
    /// Once a week
    Weekly,
}

/// `handler image build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The folder
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// The recipe in it (default: Containerfile, else Dockerfile)
    #[arg(long, short)]
    pub file: Option<String>,
    /// Name of the image; may be given again
    #[arg(long, short)]
    pub tag: Vec<String>,
    /// Build argument `NAME=VALUE`; no place for secrets; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub arg: Vec<String>,
    /// Label `NAME=VALUE`; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// Take no step from the cache
    #[arg(long)]
    pub no_cache: bool,
    /// Ask the registry for a newer base image
    #[arg(long)]
    pub pull: bool,
    /// Print the build's id and leave
    #[arg(long, short)]
    pub detach: bool,
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: ImageAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        ImageAction::List { store, all } => {
            let mut images = match &store.backend {
                Some(backend) => client.images_of(backend).await?,
                None => client.images().await?,
            };
            images.retain(|image| all || !image.names.is_empty());
            out.show(&images, |out, images| {
                let rows: Vec<Vec<String>> = images.iter().map(row).collect();
                out.table(
                    &["NAME", "ID", "BACKEND", "SIZE", "CREATED", "USED BY"],
                    &rows,
                );
            });
        }
        ImageAction::Inspect { image, store } => {
            let view = client.image(&image, store.backend.as_deref()).await?;
            out.show(&view, show);
        }
        ImageAction::Pull { image, store } => {
            let request = PullRequest {
                reference: image,
                backend: store.backend,
            };
            let begun = client.pull_image(&request).await?;
            return build::watch(&client, &begun, context).await;
        }
        ImageAction::Build(args) => return build_folder(*args, context).await,
        ImageAction::Tag { image, name, store } => {
            let request = TagRequest {
                reference: image,
                name,
                backend: store.backend,
            };
            let view = client.tag_image(&request).await?;
            out.show(&view, |out, view| out.line(&view.id));
        }
        ImageAction::Rm { images, store } => {
            for image in images {
                client
                    .delete_image(&image, store.backend.as_deref())
                    .await?;
                out.note(format!("removed {image}"));
            }
        }
        ImageAction::Import {
            archive,
            name,
            store,
        } => {
            let body = pack::file(&archive).await?;
            let begun = client
                .import_image(name.as_deref(), store.backend.as_deref(), body)
                .await?;
            return build::watch(&client, &begun, context).await;
        }
        ImageAction::Rebuild { target, store } => {
            let request = BuildRequest {
                target,
                backend: store.backend,
            };
            let begun = client.build_target(&request).await?;
            return build::watch(&client, &begun, context).await;
        }
        ImageAction::Updates { schedule, run } => {
            let view = match schedule {
                Some(schedule) => {
                    let schedule = schedule.into();
                    client
                        .set_image_updates(&ImageUpdatesRequest { schedule })
                        .await?
                }
                None if run => client.run_image_updates().await?,
                None => client.image_updates().await?,
            };
            out.show(&view, show_updates);
        }
    }
    Ok(0)
}

impl From<Schedule> for UpdateSchedule {
    fn from(typed: Schedule) -> Self {
        match typed {
            Schedule::Off => Self::Off,
            Schedule::Daily => Self::Daily,
            Schedule::Weekly => Self::Weekly,
        }
    }
}

async fn build_folder(args: BuildArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let request = ContextBuild {
        backend: args.store.backend,
        tags: args.tag,
        containerfile: args.file,
        args: pairs("--arg", &args.arg)?,
        labels: pairs("--label", &args.label)?,
        no_cache: args.no_cache,
        pull: args.pull,
    };
    let (body, packing) = pack::folder(&args.folder)?;
    let begun = client.build_context(&request, body).await;
    // Why this side broke off says more than that it did.
    if begun.is_err()
        && let Ok(Err(error)) = packing.await
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(Failure::local(
            format!("cannot pack {}", args.folder.display()),
            error,
        ));
    }
    let begun = begun?;
    if args.detach {
        context
            .out
            .show(&begun, |out, build| out.line(build.id.as_str()));
        return Ok(0);
    }
    build::watch(&client, &begun, context).await
}

fn pairs(flag: &str, typed: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("{flag} {text}: write NAME=VALUE")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    typed.iter().map(pair).collect()
}

fn row(image: &ImageView) -> Vec<String> {
    let name = if image.names.is_empty() {
        "<none>".to_owned()
    } else {
        image.names.join(", ")
    };
    vec![
        name,
        short(&image.id),
        image.backend.clone(),
        size(image.size_bytes),
        image.created_at.clone().unwrap_or_default(),
        image.used_by.join(", "),
    ]
}

fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, worth) in UNITS {
        if bytes >= worth {
            let tenths = bytes.saturating_mul(10) / worth;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

fn show(out: &crate::out::Out, view: &ImageView) {
    out.line(printable(&view.id));
    let names = view.names.join(", ");
    let facts = [
        ("names", names),
        ("backend", view.backend.clone()),
        ("size", size(view.size_bytes)),
        ("created", view.created_at.clone().unwrap_or_default()),
        ("platform", view.platform.clone().unwrap_or_default()),
        ("used by", view.used_by.join(", ")),
    ];
    for (name, value) in facts {
        out.line(format!("{name:<9} {}", printable(&value)));
    }
    let Some(config) = &view.config else { return };
    out.line(format!("{:<9} {}", "workdir", printable(&config.workdir)));
    for (kind, map) in [("env", &config.env), ("label", &config.labels)] {
        for (key, value) in map {
            out.line(format!(
                "{kind:<9} {}",
                printable(&format!("{key}={value}"))
            ));
        }
    }
}

fn show_updates(out: &crate::out::Out, view: &ImageUpdates) {
    let schedule = format!("{:?}", view.schedule).to_lowercase();
    let now = if view.running { ", running now" } else { "" };
    out.line(format!("automatic updates: {schedule}{now}"));
    for (name, at) in [("last", &view.last_run), ("next", &view.next_run)] {
        if let Some(at) = at {
            out.line(format!("{name:<9} {at}"));
        }
    }
    for build in &view.builds {
        out.line(format!("{:<9} {build}", "build"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
    }

    #[test]
    fn a_pair_without_a_sign_is_refused() {
        assert!(pairs("--arg", &["A".to_owned()]).is_err());
        let map = pairs("--arg", &["A=b=c".to_owned()]).expect("a pair");
        assert_eq!(map["A"], "b=c");
    }
}
