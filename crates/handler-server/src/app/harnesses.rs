//! Rules of harnesses: installing one into its managed prefix, and knowing what is installed.
//!
//! The package manager runs inside a sandbox that reaches only the host's own package registry and can
//! write only the new prefix. The result is checked by running the program and by a real ACP
//! `initialize` + `session/new` before it is put in place by one rename; sandboxes see it read-only.

mod check;
mod install;
mod npm;
mod python;

use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_harness::install_plan;
use handler_types::ProblemCode;
use handler_types::account::{LoginHow, LoginKind};
use handler_types::api::HarnessView;
use handler_types::harness::{HarnessDescriptor, HarnessLogin};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

/// What was tried, per harness.
#[derive(Debug, Default)]
pub struct Harnesses {
    installing: Mutex<HashMap<String, Arc<Mutex<()>>>>,
    errors: Mutex<HashMap<String, String>>,
}

/// Where a harness's prefix is inside every sandbox.
#[must_use]
pub fn prefix_inside(name: &str) -> String {
    format!("/handler/harness/{name}")
}

/// Where its present version is on the host, installed or not.
#[must_use]
pub fn prefix_on_host(app: &App, descriptor: &HarnessDescriptor) -> Option<PathBuf> {
    let plan = install_plan(descriptor, &prefix_inside(&descriptor.name))?;
    Some(
        app.settings
            .layout
            .harnesses_dir()
            .join(&descriptor.name)
            .join(plan.digest),
    )
}

/// A descriptor by name.
///
/// # Errors
/// 400 naming the nearest known one.
pub fn descriptor(name: &str) -> ApiResult<&'static HarnessDescriptor> {
    handler_harness::require(name).map_err(|e| ApiError::new(ProblemCode::Invalid, e.to_string()))
}

/// The prefix of an installed harness.
///
/// # Errors
/// 424 saying how to install it.
pub fn installed(app: &App, descriptor: &HarnessDescriptor) -> ApiResult<PathBuf> {
    // The real path: what is mounted may have no link on its way.
    let prefix = prefix_on_host(app, descriptor).and_then(|prefix| prefix.canonicalize().ok());
    prefix.filter(|prefix| prefix.is_dir()).ok_or_else(|| {
        ApiError::new(
            ProblemCode::NotConfigured,
            format!(
                "{} is not installed; install it with `handler harness install {}`",
                descriptor.product, descriptor.name
            ),
        )
    })
}

/// What an installed harness needs of the host besides its prefix and the folders every sandbox shows.
pub fn runtime(prefix: &Path) -> Option<handler_types::sandbox::MountSpec> {
    let root = python::runtime(prefix)?.to_string_lossy().into_owned();
    Some(handler_types::sandbox::MountSpec {
        source: root.clone(),
        target: root,
        read_only: true,
    })
}

/// The image of a harness in a backend's store, pinned.
///
/// # Errors
/// 424 saying how to build it; a backend that has no images or does not answer.
pub async fn image(
    app: &App,
    backend: &str,
    descriptor: &HarnessDescriptor,
) -> ApiResult<handler_types::image::ImageUse> {
    use crate::app::images::{harness_images, image_error};
    let found = harness_images::current(app, backend, descriptor).await;
    found.map_err(image_error)?.ok_or_else(|| {
        ApiError::new(
            ProblemCode::NotConfigured,
            format!(
                "{} has no image on {backend}; build it with `handler image rebuild {} --backend {backend}`",
                descriptor.product, descriptor.name
            ),
        )
    })
}

/// All, with their state.
pub async fn list(app: &App) -> Vec<HarnessView> {
    let mut views = Vec::new();
    for descriptor in handler_harness::descriptors() {
        views.push(view(app, descriptor).await);
    }
    views
}

fn login_how(descriptor: &HarnessDescriptor, login: &HarnessLogin) -> LoginHow {
    let slot = login
        .file
        .as_ref()
        .and_then(|slot| descriptor.state_slots.get(slot));
    let name = slot.and_then(|slot| slot.target.rsplit('/').next());
    LoginHow {
        kind: match login.token {
            Some(_) => LoginKind::Token,
            None => LoginKind::File,
        },
        subscription: login.subscription.clone(),
        terms: login.terms.clone(),
        token_command: login.token_command.clone(),
        token_prefix: login.token_prefix.clone(),
        command: login.command.clone(),
        env: login.env.clone(),
        login_file: name.map(str::to_owned),
        hosts: login.hosts.clone(),
        help: login.help.clone(),
        plans: login.plans.clone(),
        connectors: !descriptor.account_connectors.is_empty(),
    }
}

async fn view(app: &App, descriptor: &HarnessDescriptor) -> HarnessView {
    let is_installed = installed(app, descriptor).is_ok();
    let error = app
        .harnesses
        .errors
        .lock()
        .await
        .get(&descriptor.name)
        .cloned();
    let is_installing = {
        let locks = app.harnesses.installing.lock().await;
        locks
            .get(&descriptor.name)
            .is_some_and(|lock| lock.try_lock().is_err())
    };
    let status = match (is_installed, is_installing, &error) {
        (_, true, _) => "installing",
        (true, ..) => "installed",
        (false, _, Some(_)) => "failed",
        (false, _, None) => "missing",
    };
    HarnessView {
        name: descriptor.name.clone(),
        product: descriptor.product.clone(),
        protocols: descriptor.provider_protocols.clone(),
        permissions: descriptor.permissions.keys().copied().collect(),
        login: descriptor
            .login
            .as_ref()
            .map(|login| login_how(descriptor, login)),
        status: status.to_owned(),
        version: if is_installed {
            handler_harness::version_line(descriptor)
        } else {
            None
        },
        error: if is_installed { None } else { error },
    }
}

/// Installs one unless it is; a second call waits for the first.
///
/// # Errors
/// What went wrong, with the end of what the package manager said.
pub async fn install(app: &Arc<App>, name: &str) -> ApiResult<HarnessView> {
    let descriptor = descriptor(name)?;
    let lock = {
        let mut locks = app.harnesses.installing.lock().await;
        locks.entry(descriptor.name.clone()).or_default().clone()
    };
    // In a task of its own: a client that goes away does not leave half an installation.
    let task = tokio::spawn({
        let app = app.clone();
        async move {
            let _turn = lock.lock().await;
            if installed(&app, descriptor).is_ok() {
                return Ok(());
            }
            install::run(&app, descriptor).await
        }
    });
    let result = task
        .await
        .map_err(|_| ApiError::new(ProblemCode::Internal, "the installation ended early"))?;
    let mut errors = app.harnesses.errors.lock().await;
    match result {
        Ok(()) => {
            errors.remove(&descriptor.name);
            drop(errors);
            Ok(view(app, descriptor).await)
        }
        Err(error) => {
            errors.insert(descriptor.name.clone(), error.0.detail.clone());
            Err(error)
        }
    }
}

/// Removes what interrupted installations of an earlier daemon left. Their sandboxes must be gone.
pub fn remove_interrupted(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(install::STAGING.as_bytes())
        {
            continue;
        }
        let path = entry.path();
        tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "an interrupted installation was removed");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "an interrupted installation stays");
            }
        });
    }
}
