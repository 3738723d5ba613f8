//! What builds do, each kind: the calls to the backend's store, and Handler's own images.

use super::run::{Made, Run};
use crate::app::images::{self, harness_images, settings, toolbox};
use handler_engine::images::{BuildPlan, ImageError};
use handler_types::build::ContextBuild;
use handler_types::harness::HarnessDescriptor;
use handler_types::image::ImageConfig;

/// The work of a build.
#[derive(Debug)]
pub enum Work {
    /// An uploaded context.
    Context(ContextBuild),
    /// The toolbox and all harness images.
    Toolbox,
    /// One harness image.
    Harness(&'static HarnessDescriptor),
    /// A pull.
    Pull(String),
    /// An uploaded root file system, and the name of its image.
    Import(Option<String>),
}

impl Work {
    /// Does it.
    pub(super) async fn run(self, run: &Run) -> Result<Made, ImageError> {
        match self {
            Self::Context(request) => context(run, request).await,
            Self::Toolbox => toolbox::rebuild(run).await,
            Self::Harness(descriptor) => harness_images::rebuild(run, descriptor).await,
            Self::Pull(reference) => {
                let store = images::store(&run.app, &run.backend)?;
                let id = store.pull(&reference, &run.lines, &run.cancel).await?;
                Ok(made(id))
            }
            Self::Import(name) => import(run, name).await,
        }
    }
}

fn made(id: String) -> Made {
    Made {
        image: Some(id),
        versions: Vec::new(),
    }
}

async fn context(run: &Run, request: ContextBuild) -> Result<Made, ImageError> {
    let store = images::store(&run.app, &run.backend)?;
    let settings = settings::read(&run.app)?;
    let containerfile = match request.containerfile {
        Some(name) => name,
        None => images::context::recipe_in(run.archive()).await?,
    };
    let plan = BuildPlan {
        context: run.archive(),
        containerfile,
        args: request.args,
        tags: request.tags,
        labels: request.labels,
        no_cache: request.no_cache,
        pull: request.pull,
        ca_bundle: settings.ca_bundle_for(&run.backend),
        proxy: settings.proxy,
        lent: Default::default(),
    };
    let id = store.build(&plan, &run.lines, &run.cancel).await?;
    Ok(made(id))
}

async fn import(run: &Run, name: Option<String>) -> Result<Made, ImageError> {
    let store = images::store(&run.app, &run.backend)?;
    let config = ImageConfig::default();
    let archive = run.archive();
    let id = store.import(&archive, name.as_deref(), &config, &run.lines, &run.cancel);
    Ok(made(id.await?))
}
