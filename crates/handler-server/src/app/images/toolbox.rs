//! The toolbox (contract B.6): the user's recipe in the config folder, copied there once; its rebuild carries
//! every harness image along and switches all of them or none.

use super::harness_images::{self, Checked, LABEL, find, latest, switch};
use super::{check, settings, store};
use crate::app::builds::{Made, Run};
use crate::state::App;
use handler_engine::images::{BuildPlan, ImageError};
use handler_harness::{CONTAINERFILE, TOOLBOX, TOOLBOX_FILES, image_context, image_repository};
use handler_types::image::ImageUse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most that the recipe's folder may hold, bytes.
const MAX_CONTEXT: u64 = 256 * 1024 * 1024;

/// The folder of the recipe.
#[must_use]
pub fn folder(app: &App) -> PathBuf {
    app.settings.layout.config.join("toolbox")
}

/// Puts the shipped recipe there unless the folder exists; never changes it afterwards.
pub fn ensure(app: &App) {
    let folder = folder(app);
    if folder.exists() {
        return;
    }
    // Made beside and moved, so that a crash leaves no half of it to be taken for the user's own.
    let staging = folder.with_extension("new");
    std::fs::remove_dir_all(&staging).ok();
    let written = handler_base::fs::create_private_dir(&staging)
        .and_then(|()| {
            TOOLBOX_FILES.iter().try_for_each(|(name, text)| {
                handler_base::fs::write_atomic(&staging.join(name), text.as_bytes(), 0o644)
            })
        })
        .and_then(|()| std::fs::rename(&staging, &folder));
    if let Err(error) = written {
        tracing::warn!(%error, "the toolbox's recipe cannot be put into the config folder");
    }
}

pub(super) fn checked(id: &str) -> Checked {
    Checked {
        repository: TOOLBOX.to_owned(),
        id: id.to_owned(),
    }
}

/// Rebuilds the toolbox and the harness images that exist; checks each; switches all or none.
pub(crate) async fn rebuild(run: &Run) -> Result<Made, ImageError> {
    let store = store(&run.app, &run.backend)?;
    let id = build(run).await?;
    let mut images = vec![checked(&id)];
    let mut versions = Vec::new();
    for descriptor in handler_harness::descriptors() {
        let is_built = find(&store, &latest(&image_repository(&descriptor.name)))
            .await?
            .is_some();
        if !is_built || image_context(descriptor).is_none() {
            continue;
        }
        let (image, version) = harness_images::build(run, descriptor, &id).await?;
        images.push(image);
        versions.push(version);
    }
    switch(run, images).await?;
    Ok(Made {
        image: Some(id),
        versions,
    })
}

/// Builds and checks the toolbox alone; it stays untagged.
pub(super) async fn build(run: &Run) -> Result<String, ImageError> {
    let settings = settings::read(&run.app)?;
    let work = run.work().join("toolbox");
    let archive = work.join("context.tar");
    let (from, to) = (folder(&run.app), archive.clone());
    let packed = tokio::task::spawn_blocking(move || {
        handler_base::fs::create_private_dir(&work)?;
        pack_folder(&from, &to)
    });
    packed
        .await
        .map_err(|_| ImageError::Failed("packing the recipe ended early".to_owned()))?
        .map_err(|error| ImageError::Invalid(format!("the toolbox's recipe: {error}")))?;
    let store = store(&run.app, &run.backend)?;
    // A base image that came from no registry cannot be asked for anew.
    let is_local = settings.base_image.starts_with("localhost/");
    run.say(format!("building the toolbox on {}", settings.base_image))
        .await;
    let plan = BuildPlan {
        context: archive,
        containerfile: CONTAINERFILE.to_owned(),
        args: BTreeMap::from([("BASE_IMAGE".to_owned(), settings.base_image.clone())]),
        labels: BTreeMap::from([(LABEL.to_owned(), "toolbox".to_owned())]),
        no_cache: true,
        pull: !is_local,
        ca_bundle: settings.ca_bundle_for(&run.backend),
        proxy: settings.proxy.clone(),
        lent: settings.lent(),
        ..BuildPlan::default()
    };
    let id = store.build(&plan, &run.lines, &run.cancel).await?;
    run.note_made(&id);
    let image = ImageUse {
        reference: TOOLBOX.to_owned(),
        id: id.clone(),
    };
    check::toolbox(run, &image)
        .await
        .map_err(|error| match error {
            ImageError::Failed(text) => ImageError::Failed(format!(
                "the new toolbox did not pass its check, the old one stays: {text}"
            )),
            other => other,
        })?;
    Ok(id)
}

/// The recipe's folder as an archive: what lies in it, links as links.
fn pack_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut size = 0;
    let mut folders = vec![from.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let data = entry.metadata()?;
            size += data.len();
            if data.is_dir() {
                folders.push(entry.path());
            }
        }
        if size > MAX_CONTEXT {
            return Err(std::io::Error::other("its folder holds more than 256 MiB"));
        }
    }
    let mut archive = tar::Builder::new(std::fs::File::create(to)?);
    archive.follow_symlinks(false);
    archive.append_dir_all(".", from)?;
    archive.into_inner()?.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_folder_is_packed_whole_and_links_stay_links() {
        let dir = tempfile::tempdir().expect("a folder");
        let from = dir.path().join("toolbox");
        std::fs::create_dir_all(from.join("sub")).expect("folders");
        std::fs::write(from.join("Containerfile"), "FROM x").expect("written");
        std::fs::write(from.join("sub/a"), "a").expect("written");
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).expect("a link");
        let to = dir.path().join("c.tar");
        pack_folder(&from, &to).expect("packed");
        let mut archive = tar::Archive::new(std::fs::File::open(&to).expect("open"));
        let mut seen: Vec<(String, tar::EntryType)> = archive
            .entries()
            .expect("entries")
            .map(|e| e.expect("an entry"))
            .map(|e| {
                (
                    e.path().expect("a path").display().to_string(),
                    e.header().entry_type(),
                )
            })
            .collect();
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(
            seen.contains(&("sub/a".to_owned(), tar::EntryType::Regular)),
            "{seen:?}"
        );
        assert!(
            seen.contains(&("link".to_owned(), tar::EntryType::Symlink)),
            "{seen:?}"
        );
    }
}
