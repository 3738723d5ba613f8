//! `handler cache`: what tools keep between sandboxes.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::Out;
use clap::{Args, Subcommand};
use handler_types::cache::{CacheDeclaration, CacheSizes, CachesInfo, CachesRequest};
use serde::Serialize;
use std::collections::BTreeMap;

/// What to do with caches.
#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// List what is declared, and what is kept for whom
    #[command(visible_alias = "ls")]
    List {
        /// With the size of what is kept
        #[arg(long, short)]
        sizes: bool,
    },
    /// Empty caches that no sandbox uses now: the shared ones, or a project's own
    Clear {
        /// One of them (default: all)
        cache: Option<String>,
        /// Those of this project
        #[arg(long, short)]
        project: Option<String>,
    },
    /// Declare a cache, change it, or take it off the list
    Set(SetArgs),
}

/// `handler cache set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Its name
    pub cache: String,
    /// Where it is mounted, e.g. `~/.cargo`
    #[arg(required_unless_present = "off")]
    pub target: Option<String>,
    /// What it holds, for people
    #[arg(long)]
    pub about: Option<String>,
    /// Any tool writes there, not one
    #[arg(long)]
    pub general: bool,
    /// Take it off the list; what is kept stays until it is cleared
    #[arg(long, conflicts_with_all = ["target", "about", "general"])]
    pub off: bool,
}

/// What is listed.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    caches: CachesInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<CacheSizes>,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: CacheAction, context: &Context) -> Outcome {
    let client = context.client()?;
    let out = &context.out;
    match action {
        CacheAction::List { sizes } => {
            let listed = Listed {
                caches: client.caches().await?,
                sizes: match sizes {
                    true => Some(client.cache_sizes().await?),
                    false => None,
                },
            };
            out.show(&listed, show);
        }
        CacheAction::Clear { cache, project } => {
            match (project.as_deref(), cache.as_deref()) {
                (None, None) => client.clear_caches().await?,
                (None, Some(cache)) => client.clear_cache(cache).await?,
                (Some(project), None) => client.clear_project_caches(project).await?,
                (Some(project), Some(cache)) => client.clear_project_cache(project, cache).await?,
            }
            out.note("cleared");
        }
        CacheAction::Set(args) => {
            let mut caches: BTreeMap<String, CacheDeclaration> = BTreeMap::new();
            for cache in client.caches().await?.caches {
                let declaration = CacheDeclaration {
                    target: cache.target,
                    about: cache.about,
                    general: cache.general,
                };
                caches.insert(cache.name, declaration);
            }
            change(&mut caches, args)?;
            let info = client.set_caches(&CachesRequest { caches }).await?;
            out.show(&info, declared);
        }
    }
    Ok(0)
}

fn change(caches: &mut BTreeMap<String, CacheDeclaration>, args: SetArgs) -> Result<(), Failure> {
    if args.off {
        let gone = caches.remove(&args.cache);
        return gone
            .map(drop)
            .ok_or_else(|| Failure::Usage(format!("there is no cache `{}`", args.cache)));
    }
    let cache = caches.entry(args.cache).or_default();
    if let Some(target) = args.target {
        cache.target = target;
    }
    if let Some(about) = args.about {
        cache.about = about;
    }
    cache.general |= args.general;
    Ok(())
}

fn declared(out: &Out, info: &CachesInfo) {
    let rows: Vec<Vec<String>> = info
        .caches
        .iter()
        .map(|cache| {
            vec![
                cache.name.clone(),
                cache.target.clone(),
                cache.about.clone(),
            ]
        })
        .collect();
    out.table(&["CACHE", "MOUNTED AT", ""], &rows);
}

fn show(out: &Out, listed: &Listed) {
    let info = &listed.caches;
    declared(out, info);
    let size = |name: &String, of: Option<&BTreeMap<String, u64>>| {
        of.and_then(|of| of.get(name))
            .map_or_else(String::new, |bytes| {
                format!("{} MiB", bytes.div_ceil(1024 * 1024))
            })
    };
    let sizes = listed.sizes.as_ref();
    let mut rows = Vec::new();
    for name in info.global.caches.iter().chain(&info.global.removed) {
        let of = sizes.map(|sizes| &sizes.global);
        rows.push(vec!["(shared)".to_owned(), name.clone(), size(name, of)]);
    }
    for own in &info.own {
        let of = sizes.and_then(|sizes| sizes.own.get(own.project_id.as_str()));
        for name in own.caches.iter().chain(&own.removed) {
            rows.push(vec![own.name.clone(), name.clone(), size(name, of)]);
        }
    }
    out.table(&["KEPT FOR", "CACHE", "SIZE"], &rows);
}
