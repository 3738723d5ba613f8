//! Image roots of this backend: the store, whether this host can use it, and which sandboxes do.

use super::{NativeConfig, api};
use handler_engine::driver::{DriverError, InstancePlan};
use handler_engine::images::{ImageError, ImageStore};
use handler_images::{ImageRoot, Store};
use handler_types::SandboxId;
use handler_types::launch::LaunchAnswer;
use handler_types::sandbox::SandboxSpec;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The store of one driver.
#[derive(Debug)]
pub(super) struct Images {
    /// Why there is none, in words.
    store: Result<Store, String>,
    /// Whether a launch with an image works here; tried once.
    can: OnceCell<bool>,
}

/// The images of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// What becomes its root.
    pub(super) root: Option<ImageRoot>,
    /// What is shown elsewhere, in the order of the spec.
    pub(super) mounts: Vec<ImageRoot>,
}

impl Images {
    pub(super) fn open(config: &NativeConfig) -> Self {
        let store = match &config.images {
            None => Err("this daemon keeps no images for native sandboxes".to_owned()),
            Some(settings) => Store::open(settings.clone()).map_err(|error| {
                tracing::error!(%error, "the image store cannot be opened");
                format!("the image store cannot be opened: {error}")
            }),
        };
        Self {
            store,
            can: OnceCell::new(),
        }
    }

    pub(super) fn store(&self) -> Option<Arc<dyn ImageStore>> {
        let store = self.store.as_ref().ok()?;
        Some(Arc::new(store.clone()))
    }

    /// Whether sandboxes can start from images here.
    pub(super) async fn can(&self, config: &NativeConfig) -> bool {
        if self.store.is_err() {
            return false;
        }
        let probe = || async {
            let answer = api::probe_images(&config.guest_program).await;
            matches!(answer, Ok(LaunchAnswer::Ready { .. }))
        };
        *self.can.get_or_init(probe).await
    }

    /// Refuses a spec with images where there are none.
    pub(super) fn accept(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let wants = spec.image.is_some() || !spec.image_mounts.is_empty();
        match &self.store {
            Err(why) if wants => Err(DriverError::Unenforceable(why.clone())),
            _ => Ok(()),
        }
    }

    /// The images of a plan, noted as used until [`Images::release`].
    pub(super) async fn take(&self, plan: &InstancePlan) -> Result<Taken, DriverError> {
        let spec = &plan.spec;
        let root = spec.image.iter().map(|image| image.id.clone());
        let mounts = spec.image_mounts.iter().map(|mount| mount.image.id.clone());
        let ids: Vec<String> = root.chain(mounts).collect();
        let (Ok(store), false) = (&self.store, ids.is_empty()) else {
            return Ok(Taken::default());
        };
        let (store, owner, id) = (store.clone(), plan.owner.clone(), plan.id.to_string());
        let take = move || store.take(&owner, &id, &ids);
        let taken = tokio::task::spawn_blocking(take).await;
        let taken = taken.unwrap_or_else(|error| Err(ImageError::Failed(error.to_string())));
        let mut roots = taken.map_err(image_error)?.into_iter();
        Ok(Taken {
            root: spec.image.as_ref().and_then(|_| roots.next()),
            mounts: roots.collect(),
        })
    }

    /// The sandbox is gone, or never came to be.
    pub(super) fn release(&self, owner: &str, id: &SandboxId) -> Result<(), DriverError> {
        let Ok(store) = &self.store else {
            return Ok(());
        };
        store
            .release(owner, id.as_str())
            .map_err(|error| DriverError::Failed {
                step: "release images".to_owned(),
                message: error.to_string(),
            })
    }

    /// Sandboxes that use images.
    pub(super) fn sandboxes(&self, owner: &str) -> Vec<SandboxId> {
        let names = self.store.iter().flat_map(|store| store.sandboxes(owner));
        names.filter_map(|name| name.parse().ok()).collect()
    }
}

fn image_error(error: ImageError) -> DriverError {
    match error {
        ImageError::NotFound(_) | ImageError::Invalid(_) => DriverError::Invalid(error.to_string()),
        ImageError::NoSpace(text) => DriverError::NoSpace(text),
        error => DriverError::Failed {
            step: "image".to_owned(),
            message: error.to_string(),
        },
    }
}
