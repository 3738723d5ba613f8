//! The seam to image stores: every backend that starts from images has one.
//!
//! A store is the backend's own (Podman's, Docker's, ours for `native`): an image pulled into one is not in
//! another. Ids are content digests of that store; names move, ids do not.

use async_trait::async_trait;
use handler_types::image::{ImageConfig, ImageView};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Why an image operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No such image in this store.
    #[error("there is no image `{0}` here: pull, build or import it first")]
    NotFound(String),
    /// A name, path or argument that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Something still uses it.
    #[error("{0}")]
    InUse(String),
    /// The store cannot do this.
    #[error("{0}")]
    Unsupported(String),
    /// The engine or the registry cannot be reached; the text says what to do.
    #[error("{0}")]
    Unavailable(String),
    /// No room on a disk.
    #[error("{0}")]
    NoSpace(String),
    /// It was cancelled; nothing of it is left.
    #[error("cancelled")]
    Cancelled,
    /// It failed; nothing half-made is left.
    #[error("{0}")]
    Failed(String),
}

/// Where progress goes: lines for people, without control characters. A full channel waits.
pub type Lines = mpsc::Sender<String>;

/// A build.
#[derive(Debug, Clone, Default)]
pub struct BuildPlan {
    /// Archive (tar, plain or gzip) with the Containerfile and what it copies, alone in a private folder: what
    /// the build needs meanwhile is made beside it.
    pub context: PathBuf,
    /// The recipe's name below `context`.
    pub containerfile: String,
    /// Build arguments.
    pub args: BTreeMap<String, String>,
    /// Names it gets; empty: it stays untagged.
    pub tags: Vec<String>,
    /// Labels it gets.
    pub labels: BTreeMap<String, String>,
    /// Take no step from the cache.
    pub no_cache: bool,
    /// Ask the registry for a newer base image.
    pub pull: bool,
    /// A bundle of certificates (PEM) trusted while building, and only then: nothing of it is in the image.
    pub ca_bundle: Option<PathBuf>,
    /// Small files shown below `/run/handler-build` while building, and only then: name and content.
    pub lent: BTreeMap<String, String>,
    /// Proxy variables while building (`HTTPS_PROXY` …), and only then.
    pub proxy: BTreeMap<String, String>,
}

/// Images of one backend.
#[async_trait]
pub trait ImageStore: Send + Sync + std::fmt::Debug {
    /// All images, untagged ones too.
    async fn list(&self) -> Result<Vec<ImageView>, ImageError>;

    /// One image by name or id (also a unique prefix of at least 8 digits), with its configuration. Results are
    /// cached by id; a name is looked up each time.
    async fn inspect(&self, reference: &str) -> Result<(ImageView, ImageConfig), ImageError>;

    /// Gets an image from its registry; answers its id.
    async fn pull(
        &self,
        reference: &str,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError>;

    /// Builds an image; answers its id.
    async fn build(
        &self,
        plan: &BuildPlan,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError>;

    /// Gives an image another name, taking the name from whatever had it.
    async fn tag(&self, reference: &str, name: &str) -> Result<(), ImageError>;

    /// Removes a name, and the image with its last name; an id removes the image. Refused while in use.
    async fn remove(&self, reference: &str) -> Result<(), ImageError>;

    /// Makes an image from a root file system archive (tar, plain or gzip) at `path`; answers its id.
    async fn import(
        &self,
        path: &std::path::Path,
        name: Option<&str>,
        config: &ImageConfig,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError>;

    /// Ends builds of an earlier daemon and removes what they left; `folder` holds the folders of all its builds'
    /// contexts. Called once, before the first build.
    async fn sweep(&self, _folder: &std::path::Path) {}
}
