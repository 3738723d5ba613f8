//! Harness images (contract B.6, D.4): built untagged on the toolbox, checked, then switched to `:latest`; what
//! was replaced goes when nothing uses it.

use super::{check, context, settings, store, toolbox, users};
use crate::app::builds::{Made, Run};
use crate::state::App;
use handler_engine::images::{BuildPlan, ImageError, ImageStore};
use handler_harness::{CONTAINERFILE, TOOLBOX, image_context, image_repository};
use handler_types::harness::HarnessDescriptor;
use handler_types::image::ImageUse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label of Handler's own images: what they are for.
pub(super) const LABEL: &str = "handler.image";

/// The tag that agents start from, and the only one.
#[must_use]
pub fn latest(repository: &str) -> String {
    format!("{repository}:latest")
}

/// A new image and the name it is to get.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) repository: String,
    pub(super) id: String,
}

/// The image of a harness in a backend's store, pinned; none: not built there.
///
/// # Errors
/// A backend that does not answer.
pub async fn current(
    app: &App,
    backend: &str,
    descriptor: &HarnessDescriptor,
) -> Result<Option<ImageUse>, ImageError> {
    let reference = latest(&image_repository(&descriptor.name));
    find(&store(app, backend)?, &reference).await
}

pub(super) async fn find(
    store: &Arc<dyn ImageStore>,
    reference: &str,
) -> Result<Option<ImageUse>, ImageError> {
    match store.inspect(reference).await {
        Ok((view, _)) => Ok(Some(ImageUse {
            reference: reference.to_owned(),
            id: view.id,
        })),
        Err(ImageError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Rebuilds one harness's image; builds the toolbox first where there is none.
pub(crate) async fn rebuild(
    run: &Run,
    descriptor: &'static HarnessDescriptor,
) -> Result<Made, ImageError> {
    let store = store(&run.app, &run.backend)?;
    let base = match find(&store, &latest(TOOLBOX)).await? {
        Some(base) => base.id,
        None => {
            run.say("there is no toolbox yet: it is built first").await;
            let id = toolbox::build(run).await?;
            switch(run, vec![toolbox::checked(&id)]).await?;
            id
        }
    };
    let (checked, version) = build(run, descriptor, &base).await?;
    let image = Some(checked.id.clone());
    switch(run, vec![checked]).await?;
    Ok(Made {
        image,
        versions: vec![version],
    })
}

/// Builds one on a toolbox and checks it; answers what to switch and the version line.
pub(super) async fn build(
    run: &Run,
    descriptor: &'static HarnessDescriptor,
    toolbox: &str,
) -> Result<(Checked, String), ImageError> {
    let settings = settings::read(&run.app)?;
    let files = image_context(descriptor)
        .ok_or_else(|| ImageError::Unsupported(format!("{} has no recipe", descriptor.product)))?;
    let folder = run.work().join(&descriptor.name);
    let archive = folder.join("context.tar");
    let packed = handler_base::fs::create_private_dir(&folder).and_then(|()| {
        let files = files
            .iter()
            .map(|(name, text, mode)| (name.as_str(), text.as_bytes(), *mode));
        context::pack(&archive, files)
    });
    packed
        .map_err(|error| ImageError::Failed(format!("the context cannot be written: {error}")))?;
    run.say(format!("building the image of {}", descriptor.product))
        .await;
    let hex = toolbox.strip_prefix("sha256:").unwrap_or(toolbox);
    let plan = BuildPlan {
        context: archive,
        containerfile: CONTAINERFILE.to_owned(),
        args: BTreeMap::from([
            ("TOOLBOX_IMAGE".to_owned(), hex.to_owned()),
            ("VERSIONS".to_owned(), settings.versions.clone()),
        ]),
        labels: BTreeMap::from([(LABEL.to_owned(), descriptor.name.clone())]),
        no_cache: true,
        ca_bundle: settings.ca_bundle_for(&run.backend),
        proxy: settings.proxy.clone(),
        lent: settings.lent(),
        ..BuildPlan::default()
    };
    let store = store(&run.app, &run.backend)?;
    let id = store.build(&plan, &run.lines, &run.cancel).await?;
    run.note_made(&id);
    let image = ImageUse {
        reference: image_repository(&descriptor.name),
        id: id.clone(),
    };
    let version = check::harness(run, descriptor, &image)
        .await
        .map_err(|error| match error {
            ImageError::Failed(text) => ImageError::Failed(format!(
                "the new image of {} did not pass its check, the old one stays: {text}",
                descriptor.product
            )),
            other => other,
        })?;
    super::versions::keep(&run.app, &id, &version);
    let checked = Checked {
        repository: image.reference,
        id,
    };
    Ok((checked, version))
}

/// Gives all their names, or none; then removes what had them and is not used any more.
pub(super) async fn switch(run: &Run, images: Vec<Checked>) -> Result<(), ImageError> {
    let store = store(&run.app, &run.backend)?;
    if run.cancel.is_cancelled() {
        return Err(ImageError::Cancelled);
    }
    let mut replaced = Vec::new();
    for image in &images {
        replaced.push(
            find(&store, &latest(&image.repository))
                .await?
                .map(|old| old.id),
        );
    }
    // From here on the new ones are wanted: a crash leaves one without a name rather than a name without one.
    run.keep_made();
    for (at, image) in images.iter().enumerate() {
        let Err(error) = store.tag(&image.id, &latest(&image.repository)).await else {
            continue;
        };
        for (earlier, old) in images[..at].iter().zip(&replaced) {
            if let Some(old) = old {
                store.tag(old, &latest(&earlier.repository)).await.ok();
            }
        }
        for image in &images {
            run.note_made(&image.id);
        }
        return Err(error);
    }
    for (image, old) in images.iter().zip(replaced) {
        run.say(format!("{} is the new image", latest(&image.repository)))
            .await;
        if let Some(old) = old.filter(|old| *old != image.id) {
            remove_unused(run, &store, &old).await;
        }
    }
    super::changed(&run.app, &run.backend);
    Ok(())
}

async fn remove_unused(run: &Run, store: &Arc<dyn ImageStore>, id: &str) {
    let has_name = match store.inspect(id).await {
        Ok((view, _)) => !view.names.is_empty(),
        Err(_) => return,
    };
    if has_name || !users(&run.app, &run.backend, id).is_empty() {
        run.say("the replaced image stays: it is still used").await;
        return;
    }
    match store.remove(id).await {
        Ok(()) | Err(ImageError::NotFound(_)) => {}
        Err(error) => run.say(format!("the replaced image stays: {error}")).await,
    }
}
