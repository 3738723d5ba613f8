//! The store: who holds which images, and the seam through which the rest of Handler uses it.
//!
//! Order of writing: layers, then the image's record, then its name. Order of removing: name, record, layers.
//! A crash in between leaves layers nobody has (collected at the next start) or an image without a name
//! (listed, removable): never an image without its layers.

use crate::digest::Digest;
use crate::error::io_error;
use crate::folders::{Folders, Staging};
use crate::layers::{Layers, Reserved};
use crate::name::{Name, familiar};
use crate::record::{Record, Records};
use crate::registry::Registries;
use crate::root::ImageRoot;
use crate::{import, pins, pull};
use async_trait::async_trait;
use handler_engine::images::{BuildPlan, ImageError, ImageStore, Lines};
use handler_types::image::{ImageConfig, ImageView};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// The backend whose images these are.
const BACKEND: &str = "native";
/// Fewest digits of an id that is given in part.
const LEAST_DIGITS: usize = 8;

/// Settings of the store.
#[derive(Debug, Clone, Default)]
pub struct StoreConfig {
    /// The store's folder; made when missing.
    pub folder: PathBuf,
    /// One more file of certificate authorities (PEM) that registries may be signed by.
    pub extra_ca_file: Option<PathBuf>,
    /// Files with credentials of registries, as `podman login` and `docker login` write them; the first that
    /// knows a registry counts, and one that is missing knows none.
    pub auth_files: Vec<PathBuf>,
}

/// An image store of our own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) folders: Folders,
    pub(crate) layers: Layers,
    pub(crate) records: Mutex<Records>,
    pub(crate) registries: Registries,
}

impl Inner {
    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changing is for one process at a time.
    pub(crate) fn hold(&self) -> Result<(), ImageError> {
        match self.folders.hold() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ImageError::Unavailable(
                "another Handler daemon uses this image store; stop it first".to_owned(),
            )),
            Err(error) => Err(io_error("lock the image store", &error)),
        }
    }

    pub(crate) fn staging(&self) -> Result<Staging, ImageError> {
        let made = self.folders.staging();
        made.map_err(|error| io_error("make a folder in the image store", &error))
    }

    /// Writes an image down whose layers are there (and reserved), with a name if it gets one.
    pub(crate) fn add(
        &self,
        record: Record,
        names: &[String],
        _layers: &[Reserved],
    ) -> Result<(), ImageError> {
        let failed = |error: io::Error| io_error("write the image down", &error);
        let mut records = self.records();
        let id = record.id.clone();
        records.add(&self.folders, record).map_err(failed)?;
        for name in names {
            records
                .name(&self.folders, name.clone(), &id)
                .map_err(failed)?;
        }
        Ok(())
    }

    fn find(&self, reference: &str) -> Result<Record, ImageError> {
        let records = self.records();
        let id = find(&records, reference)?;
        let record = records.images.get(&id).cloned();
        record.ok_or_else(|| ImageError::NotFound(reference.to_owned()))
    }

    fn view(&self, record: &Record, used: &[(String, Digest)], with_config: bool) -> ImageView {
        let records = self.records();
        let names = records.names_of(&record.id);
        let users = used.iter().filter(|(_, id)| *id == record.id);
        let mut used_by: Vec<String> = users.map(|(sandbox, _)| sandbox.clone()).collect();
        used_by.sort();
        ImageView {
            backend: BACKEND.to_owned(),
            id: record.id.to_string(),
            names: names
                .into_iter()
                .map(|name| familiar(name).to_owned())
                .collect(),
            size_bytes: record.bytes(),
            created_at: record.created_at.clone(),
            platform: Some(record.platform.clone()),
            config: with_config.then(|| record.config.clone()),
            used_by,
        }
    }

    fn remove(&self, reference: &str) -> Result<Staging, ImageError> {
        self.hold()?;
        let failed = |error: io::Error| io_error("remove the image", &error);
        let mut records = self.records();
        let id = find(&records, reference)?;
        let name = Name::parse(reference).ok().and_then(|name| name.stored());
        let name = name.filter(|name| records.names.get(name) == Some(&id));
        if let Some(name) = name
            && records.names_of(&id).len() > 1
        {
            records
                .unname(&self.folders, |other, _| other == name)
                .map_err(failed)?;
            return self.staging();
        }
        let pins = pins::all(&self.folders);
        let users: Vec<&str> = pins
            .iter()
            .filter(|(_, used)| *used == id)
            .map(|(sandbox, _)| sandbox.as_str())
            .collect();
        if !users.is_empty() {
            return Err(ImageError::InUse(format!(
                "image `{reference}` is used by sandbox {}: remove {} first",
                users.join(", "),
                if users.len() == 1 { "it" } else { "them" }
            )));
        }
        records.forget(&self.folders, &id).map_err(failed)?;
        self.layers.collect(&self.folders, &records).map_err(failed)
    }

    /// Removes layers that nothing needs.
    pub(crate) fn collect(&self) -> io::Result<()> {
        let gone = self.layers.collect(&self.folders, &self.records())?;
        drop(gone);
        Ok(())
    }
}

impl Store {
    /// Opens the store, making it when missing, and removes what a crash left half-made.
    ///
    /// # Errors
    /// When its folder cannot be made or read.
    pub fn open(config: StoreConfig) -> io::Result<Self> {
        let folders = Folders::open(&config.folder)?;
        let records = Records::read(&folders)?;
        let inner = Inner {
            registries: Registries::new(&config),
            folders,
            layers: Layers::default(),
            records: Mutex::new(records),
        };
        if inner.folders.hold()? {
            inner.collect()?;
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What it takes to start from an image, and notes that this sandbox uses `ids` from now on, so that none of
    /// them can be removed. The note stays until [`Store::release`]; answers a root for each id, in order.
    ///
    /// # Errors
    /// [`ImageError::NotFound`] when one of them is not here (any more); nothing is noted then.
    pub fn take(
        &self,
        owner: &str,
        sandbox: &str,
        ids: &[String],
    ) -> Result<Vec<ImageRoot>, ImageError> {
        // Held over both, so that no removal comes in between.
        let records = self.inner.records();
        let mut found = Vec::new();
        for text in ids {
            let missing = || ImageError::NotFound(text.clone());
            let id = Digest::try_from(text.clone()).map_err(|_| missing())?;
            found.push(records.images.get(&id).ok_or_else(missing)?);
        }
        let pinned: Vec<Digest> = found.iter().map(|record| record.id.clone()).collect();
        pins::write(&self.inner.folders, owner, sandbox, &pinned)
            .map_err(|error| io_error("note which images the sandbox uses", &error))?;
        let folders = &self.inner.folders;
        Ok(found
            .into_iter()
            .map(|record| ImageRoot::of(folders, record))
            .collect())
    }

    /// Forgets that a sandbox uses images. Does nothing, successfully, when it uses none.
    ///
    /// # Errors
    /// When the note cannot be removed.
    pub fn release(&self, owner: &str, sandbox: &str) -> io::Result<()> {
        pins::remove(&self.inner.folders, owner, sandbox)
    }

    /// Sandboxes of this owner that use images.
    #[must_use]
    pub fn sandboxes(&self, owner: &str) -> Vec<String> {
        pins::of_owner(&self.inner.folders, owner)
    }

    /// The folder everything is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.inner.folders.root()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Inner>) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|error| ImageError::Failed(error.to_string()))?
    }
}

/// The id a text means: a name, a whole id, or the first digits of one.
fn find(records: &Records, reference: &str) -> Result<Digest, ImageError> {
    let not_found = || ImageError::NotFound(reference.to_owned());
    let name = Name::parse(reference).ok().and_then(|name| name.stored());
    if let Some(id) = name.and_then(|name| records.names.get(&name)) {
        return Ok(id.clone());
    }
    let digits = reference.strip_prefix("sha256:").unwrap_or(reference);
    if digits.len() < LEAST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(not_found());
    }
    let mut fitting = records
        .images
        .keys()
        .filter(|id| id.hex().starts_with(digits));
    match (fitting.next(), fitting.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) => Err(ImageError::Invalid(format!(
            "several images start with `{reference}`"
        ))),
        (None, _) => Err(not_found()),
    }
}

#[async_trait]
impl ImageStore for Store {
    async fn list(&self) -> Result<Vec<ImageView>, ImageError> {
        self.blocking(|inner| {
            let used = pins::all(&inner.folders);
            let all: Vec<Record> = inner.records().images.values().cloned().collect();
            Ok(all
                .iter()
                .map(|record| inner.view(record, &used, false))
                .collect())
        })
        .await
    }

    async fn inspect(&self, reference: &str) -> Result<(ImageView, ImageConfig), ImageError> {
        let reference = reference.to_owned();
        self.blocking(move |inner| {
            let record = inner.find(&reference)?;
            let view = inner.view(&record, &pins::all(&inner.folders), true);
            Ok((view, record.config))
        })
        .await
    }

    async fn pull(
        &self,
        reference: &str,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        self.inner.hold()?;
        let id = pull::pull(&self.inner, reference, lines, cancel).await?;
        Ok(id.to_string())
    }

    async fn build(
        &self,
        _plan: &BuildPlan,
        _lines: &Lines,
        _cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        Err(ImageError::Unsupported(
            "the native engine does not build images: build with podman or docker, save the image (`podman save -o image.tar NAME`) and import it"
                .to_owned(),
        ))
    }

    async fn tag(&self, reference: &str, name: &str) -> Result<(), ImageError> {
        let (reference, name) = (reference.to_owned(), name.to_owned());
        self.blocking(move |inner| {
            inner.hold()?;
            let stored = stored_name(&name)?;
            let mut records = inner.records();
            let id = find(&records, &reference)?;
            records
                .name(&inner.folders, stored, &id)
                .map_err(|error| io_error("name the image", &error))
        })
        .await
    }

    async fn remove(&self, reference: &str) -> Result<(), ImageError> {
        let reference = reference.to_owned();
        self.blocking(move |inner| {
            let gone = inner.remove(&reference)?;
            drop(gone);
            Ok(())
        })
        .await
    }

    async fn import(
        &self,
        path: &Path,
        name: Option<&str>,
        config: &ImageConfig,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        let names = name.map(stored_name).transpose()?;
        let work = import::Import {
            path: path.to_owned(),
            name: names,
            config: config.clone(),
            lines: lines.clone(),
            cancel: cancel.clone(),
        };
        self.blocking(move |inner| work.run(inner).map(|id| id.to_string()))
            .await
    }
}

/// A name as it is stored; one with a digest is none.
pub(crate) fn stored_name(name: &str) -> Result<String, ImageError> {
    let parsed = Name::parse(name).map_err(ImageError::Invalid)?;
    match parsed.digest {
        None => parsed
            .stored()
            .ok_or_else(|| ImageError::Invalid(format!("`{name}` is no name"))),
        Some(_) => Err(ImageError::Invalid(format!(
            "`{name}`: a name that is given has no digest"
        ))),
    }
}
