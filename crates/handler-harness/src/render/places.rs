//! Where things are inside: state slots, skills, caches, the prefix.

use super::error::shown;
use super::{RenderError, expand};
use crate::descriptor::check::is_in_home;
use handler_types::harness::{HarnessDescriptor, RenderInput, SlotKind, StateMount};
use handler_types::launch::LaunchMount;
use std::collections::BTreeSet;

pub(super) fn checked_prefix(prefix: &str) -> Result<&str, RenderError> {
    let bad = !prefix.starts_with('/')
        || prefix.ends_with('/')
        || prefix.contains(|c: char| c == ':' || c.is_control());
    if bad {
        return Err(RenderError::Prefix);
    }
    Ok(prefix)
}

pub(super) fn checked_scope(scope: &str) -> Result<&str, RenderError> {
    if scope.starts_with('/') && !scope.contains(char::is_control) {
        return Ok(scope);
    }
    Err(RenderError::Scope)
}

/// The agent's own slots and its history; a login file is an account's.
pub(super) fn state(descriptor: &HarnessDescriptor) -> Vec<StateMount> {
    let own = descriptor.state_slots.iter().filter(|(_, s)| !s.credential);
    own.map(|(name, slot)| StateMount {
        slot: name.clone(),
        target: expand(&descriptor.home, &slot.target),
        kind: slot.kind,
        per_session: slot.per_session,
        initial: match (&slot.initial, slot.kind) {
            (Some(initial), _) => initial.clone(),
            (None, SlotKind::File) if slot.target.ends_with(".json") => "{}".to_owned(),
            (None, _) => String::new(),
        },
    })
    .collect()
}

pub(super) fn writable(descriptor: &HarnessDescriptor) -> Vec<String> {
    let paths = descriptor.writable_paths.iter();
    paths.map(|path| expand(&descriptor.home, path)).collect()
}

/// One folder per skill, read-only below the harness's folder of skills.
pub(super) fn skills(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
) -> Result<Vec<LaunchMount>, RenderError> {
    if input.skills.is_empty() {
        return Ok(Vec::new());
    }
    let folder = descriptor.skills_dir.as_ref();
    let folder = folder.ok_or_else(|| RenderError::Lacks {
        product: descriptor.product.clone(),
        lacks: "has no skills".to_owned(),
        remedy: "remove them from the agent",
    })?;
    let mut names = BTreeSet::new();
    input
        .skills
        .iter()
        .map(|source| {
            let refuse = |problem| RenderError::Skill {
                folder: shown(source, 256),
                problem,
            };
            let name = source.rsplit('/').next().unwrap_or_default();
            if !source.starts_with('/') || !is_name(name) {
                return Err(refuse(
                    "must be an absolute path whose last part can be a skill's name",
                ));
            }
            if !names.insert(name) {
                return Err(refuse("has the name of another; rename one of them"));
            }
            Ok(LaunchMount {
                source: source.clone(),
                target: format!("{}/{name}", expand(&descriptor.home, folder)),
                read_only: true,
            })
        })
        .collect()
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(char::is_control)
}

pub(super) fn caches(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
) -> Result<Vec<LaunchMount>, RenderError> {
    let caches = input.caches.iter();
    caches
        .map(|(target, source)| {
            if !is_in_home(target) || !source.starts_with('/') {
                return Err(RenderError::Cache {
                    target: shown(target, 256),
                });
            }
            Ok(LaunchMount {
                source: source.clone(),
                target: expand(&descriptor.home, target),
                read_only: false,
            })
        })
        .collect()
}
