//! The [`ImageStore`] of an engine: short calls here, long ones in files of their own.

use super::http::{Api, encode};
use super::reference::{is_image_name, is_reference, split_tag, with_tag};
use super::view::{full_id, hex, inspected, listed};
use super::{build, import, podman_build, pull};
use crate::oci::OciApi;
use async_trait::async_trait;
use handler_engine::images::{BuildPlan, ImageError, ImageStore, Lines};
use handler_types::image::{ImageConfig, ImageView};
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Most configurations kept; ids never change their meaning, so any may be dropped.
const CACHED: usize = 256;

/// The images of a container engine.
#[derive(Debug)]
pub struct OciImages {
    pub(super) api: Api,
    /// Configuration and view by id; names in it are not trusted.
    cache: Mutex<BTreeMap<String, (ImageView, ImageConfig)>>,
}

impl OciImages {
    /// The store of an engine.
    #[must_use]
    pub fn new(engine: OciApi) -> Self {
        Self {
            api: Api { engine },
            cache: Mutex::new(BTreeMap::new()),
        }
    }

    /// The configuration of an image that exists, by its full id: at most one call for each id.
    ///
    /// # Errors
    /// [`ImageError`].
    pub async fn config_of(&self, id: &str) -> Result<ImageConfig, ImageError> {
        let cached = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(id).map(|(_, config)| config.clone())
        };
        match cached {
            Some(config) => Ok(config),
            None => Ok(self.look_up(id).await?.1),
        }
    }

    async fn look_up(&self, reference: &str) -> Result<(ImageView, ImageConfig), ImageError> {
        let path = format!("/images/{}/json", self.name_in_path(reference));
        let value = self.api.json(Method::GET, &path, &[]).await;
        let value = value.map_err(|error| missing(error, reference))?;
        let found = inspected(self.api.backend(), &value).ok_or_else(|| {
            ImageError::Failed("the engine describes the image without an id".into())
        })?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        while cache.len() >= CACHED {
            cache.pop_first();
        }
        cache.insert(found.0.id.clone(), found.clone());
        Ok(found)
    }

    /// A reference as a path segment. Podman knows ids without their algorithm best.
    pub(super) fn name_in_path(&self, reference: &str) -> String {
        if self.api.is_podman() {
            encode(hex(reference))
        } else {
            // Slashes of names are part of Docker's paths.
            reference
                .split('/')
                .map(encode)
                .collect::<Vec<_>>()
                .join("/")
        }
    }

    /// Containers made from the image, by name.
    async fn users(&self, id: &str) -> Result<Vec<String>, ImageError> {
        let filters = serde_json::json!({ "ancestor": [hex(id)] }).to_string();
        let query = [("all", "true"), ("filters", filters.as_str())];
        let value = self
            .api
            .json(Method::GET, "/containers/json", &query)
            .await?;
        let all = value.as_array().into_iter().flatten();
        Ok(all
            .filter_map(|container| container["Names"][0].as_str().or(container["Id"].as_str()))
            .map(|name| name.trim_start_matches('/').chars().take(40).collect())
            .collect())
    }

    async fn remove_one(&self, reference: &str) -> Result<(), ImageError> {
        let path = format!("/images/{}", self.name_in_path(reference));
        let removed = self
            .api
            .json(Method::DELETE, &path, &[("force", "false")])
            .await;
        removed
            .map(|_| ())
            .map_err(|error| missing(error, reference))
    }

    async fn refuse_used(&self, id: &str) -> Result<(), ImageError> {
        let users = self.users(id).await?;
        if users.is_empty() {
            return Ok(());
        }
        Err(ImageError::InUse(format!(
            "containers use the image: {}; remove them first",
            users.iter().take(5).cloned().collect::<Vec<_>>().join(", ")
        )))
    }
}

/// "Not found" with the name that was asked for.
pub(super) fn missing(error: ImageError, reference: &str) -> ImageError {
    match error {
        ImageError::NotFound(_) => ImageError::NotFound(reference.to_owned()),
        other => other,
    }
}

pub(super) fn check_reference(reference: &str) -> Result<(), ImageError> {
    if is_reference(reference) {
        return Ok(());
    }
    let shown: String = reference.chars().take(80).collect();
    Err(ImageError::Invalid(format!(
        "`{shown}` is not the name or id of an image; write name:tag or sha256:…"
    )))
}

pub(super) fn check_name(name: &str) -> Result<(), ImageError> {
    if is_image_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(ImageError::Invalid(format!(
        "`{shown}` cannot be the name of an image; write e.g. localhost/name:tag in lower case"
    )))
}

#[async_trait]
impl ImageStore for OciImages {
    async fn list(&self) -> Result<Vec<ImageView>, ImageError> {
        let value = self.api.json(Method::GET, "/images/json", &[]).await?;
        let all = value.as_array().into_iter().flatten();
        let mut views: Vec<ImageView> = all
            .filter_map(|image| listed(self.api.backend(), image))
            .collect();
        views.sort_by(|a, b| (&b.created_at, &a.id).cmp(&(&a.created_at, &b.id)));
        // An image with several names may be listed once for each.
        views.dedup_by(|a, b| a.id == b.id);
        Ok(views)
    }

    async fn inspect(&self, reference: &str) -> Result<(ImageView, ImageConfig), ImageError> {
        check_reference(reference)?;
        self.look_up(reference).await
    }

    async fn pull(
        &self,
        reference: &str,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        check_reference(reference)?;
        pull::run(self, reference, lines, cancel).await
    }

    async fn build(
        &self,
        plan: &BuildPlan,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        build::run(self, plan, lines, cancel).await
    }

    async fn tag(&self, reference: &str, name: &str) -> Result<(), ImageError> {
        check_reference(reference)?;
        check_name(name)?;
        let name = with_tag(name);
        let (repo, tag) = split_tag(&name);
        let path = format!("/images/{}/tag", self.name_in_path(reference));
        let query = [("repo", repo), ("tag", tag.unwrap_or("latest"))];
        let done = self.api.json(Method::POST, &path, &query).await;
        done.map(|_: Value| ())
            .map_err(|error| missing(error, reference))
    }

    async fn remove(&self, reference: &str) -> Result<(), ImageError> {
        check_reference(reference)?;
        let (view, _) = self.look_up(reference).await?;
        let is_id = hex(&view.id).starts_with(hex(reference));
        if !is_id && view.names.len() > 1 {
            return self.remove_one(reference).await;
        }
        self.refuse_used(&view.id).await?;
        if !is_id || view.names.is_empty() {
            return self.remove_one(reference).await;
        }
        // The engines refuse an id with several names: each goes, the last one with the image.
        for name in &view.names {
            self.remove_one(name).await?;
        }
        Ok(())
    }

    async fn import(
        &self,
        path: &Path,
        name: Option<&str>,
        config: &ImageConfig,
        lines: &Lines,
        cancel: &CancellationToken,
    ) -> Result<String, ImageError> {
        if let Some(name) = name {
            check_name(name)?;
        }
        let id = import::run(self, path, name, config, lines, cancel).await?;
        Ok(full_id(&id))
    }

    async fn sweep(&self, folder: &Path) {
        if self.api.is_podman() {
            podman_build::sweep(folder).await;
        }
    }
}
