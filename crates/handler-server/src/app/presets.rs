//! Environment presets: blanks of a request filled in where the request says nothing.

use crate::http::problem::{ApiError, ApiResult, chain};
use crate::state::App;
use handler_store::named::{NamedFileError, NamedFiles};
use handler_types::ProblemCode;
use handler_types::network::Transparent;
use handler_types::preset::{Preset, PresetView};
use handler_types::sandbox::{Confinement, CreateSandbox, Resources};
use std::collections::BTreeMap;

fn files(app: &App) -> NamedFiles<Preset> {
    NamedFiles::new(app.settings.layout.config.join("presets"))
}

/// A refusal of a named file as ours.
pub(super) fn named_error(error: &NamedFileError) -> ApiError {
    let code = match error {
        NamedFileError::InvalidName { .. } => ProblemCode::Invalid,
        NamedFileError::Invalid { .. } => ProblemCode::NotConfigured,
        NamedFileError::Io { .. } => ProblemCode::BackendFailed,
    };
    ApiError::new(code, chain(error))
}

/// All presets.
///
/// # Errors
/// An unreadable folder.
pub fn list(app: &App) -> ApiResult<Vec<PresetView>> {
    let listed = files(app).list().map_err(|e| named_error(&e))?;
    Ok(listed
        .into_iter()
        .map(|entry| match entry.document {
            Ok(preset) => PresetView {
                name: entry.name,
                preset: Some(preset),
                problems: Vec::new(),
            },
            Err(problem) => PresetView {
                name: entry.name,
                preset: None,
                problems: vec![problem],
            },
        })
        .collect())
}

/// One preset.
///
/// # Errors
/// 404; a file that is wrong.
pub fn get(app: &App, name: &str) -> ApiResult<Preset> {
    let found = files(app).get(name).map_err(|e| named_error(&e))?;
    found.ok_or_else(|| {
        ApiError::new(
            ProblemCode::NotFound,
            format!("there is no preset `{name}`; `handler preset list` shows them"),
        )
    })
}

/// Makes or replaces one.
///
/// # Errors
/// What a preset cannot say.
pub fn put(app: &App, name: &str, preset: &Preset) -> ApiResult<PresetView> {
    let spec = &preset.sandbox;
    if spec.name.is_some() || spec.scope.is_some() || spec.preset.is_some() {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "a preset says nothing of name, scope and preset: those are each sandbox's own",
        ));
    }
    files(app).put(name, preset).map_err(|e| named_error(&e))?;
    Ok(PresetView {
        name: name.to_owned(),
        preset: Some(preset.clone()),
        problems: Vec::new(),
    })
}

/// Removes one.
///
/// # Errors
/// 404.
pub fn remove(app: &App, name: &str) -> ApiResult<()> {
    if files(app).remove(name).map_err(|e| named_error(&e))? {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::NotFound,
        format!("there is no preset `{name}`"),
    ))
}

/// The request with its preset's words where it has none.
///
/// # Errors
/// An unknown preset.
pub(super) fn applied(app: &App, request: CreateSandbox) -> ApiResult<CreateSandbox> {
    match request.preset.as_deref() {
        None => Ok(request),
        Some(name) => Ok(fill(request.clone(), get(app, name)?.sandbox)),
    }
}

fn fill(mut asked: CreateSandbox, preset: CreateSandbox) -> CreateSandbox {
    let merged = |mine: &mut BTreeMap<String, String>, theirs: BTreeMap<String, String>| {
        for (key, value) in theirs {
            mine.entry(key).or_insert(value);
        }
    };
    // Another backend has other images and runtimes: then the preset's would not fit.
    let is_same_backend = asked.backend.is_none() || asked.backend == preset.backend;
    if is_same_backend {
        asked.image = asked.image.or(preset.image);
        asked.runtime = asked.runtime.or(preset.runtime);
        merged(&mut asked.image_mounts, preset.image_mounts);
    }
    asked.backend = asked.backend.or(preset.backend);
    asked.network = asked.network.or(preset.network);
    asked.ttl_seconds = asked.ttl_seconds.or(preset.ttl_seconds);
    asked.idle = asked.idle.or(preset.idle);
    asked.project = asked.project.or(preset.project);
    asked.resources = Resources {
        memory_mib: asked.resources.memory_mib.or(preset.resources.memory_mib),
        cpus: asked.resources.cpus.or(preset.resources.cpus),
        pids: asked.resources.pids.or(preset.resources.pids),
    };
    if asked.confinement == Confinement::default() {
        asked.confinement = preset.confinement;
    }
    if asked.transparent == Transparent::default() {
        asked.transparent = preset.transparent;
    }
    asked.best_effort_limits |= preset.best_effort_limits;
    asked.display |= preset.display;
    asked.no_default_files |= preset.no_default_files;
    merged(&mut asked.env, preset.env);
    merged(&mut asked.labels, preset.labels);
    merged(&mut asked.metadata, preset.metadata);
    merged(&mut asked.files, preset.files);
    for (variable, grant) in preset.secrets {
        asked.secrets.entry(variable).or_insert(grant);
    }
    for (target, grant) in preset.logins {
        asked.logins.entry(target).or_insert(grant);
    }
    for mount in preset.mounts {
        if !asked.mounts.iter().any(|mine| mine.target == mount.target) {
            asked.mounts.push(mount);
        }
    }
    for (mine, theirs) in [
        (&mut asked.writable_paths, preset.writable_paths),
        (&mut asked.path_append, preset.path_append),
        (&mut asked.quick_files, preset.quick_files),
    ] {
        for item in theirs {
            if !mine.contains(&item) {
                mine.push(item);
            }
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::network::NetworkPolicy;

    #[test]
    fn what_the_request_says_counts_before_the_preset() {
        let pairs = |items: &[(&str, &str)]| {
            items
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let asked = CreateSandbox {
            network: Some(NetworkPolicy::None),
            env: pairs(&[("A", "mine")]),
            ..CreateSandbox::default()
        };
        let preset = CreateSandbox {
            backend: Some("podman".into()),
            image: Some("debian:13".into()),
            network: Some(NetworkPolicy::Open),
            env: pairs(&[("A", "theirs"), ("B", "theirs")]),
            ..CreateSandbox::default()
        };
        let filled = fill(asked.clone(), preset.clone());
        assert_eq!(filled.network, Some(NetworkPolicy::None));
        assert_eq!(filled.image.as_deref(), Some("debian:13"));
        assert_eq!(filled.env, pairs(&[("A", "mine"), ("B", "theirs")]));
        let native = CreateSandbox {
            backend: Some("native".into()),
            ..asked
        };
        assert_eq!(
            fill(native, preset).image,
            None,
            "another backend's image does not fit"
        );
    }
}
