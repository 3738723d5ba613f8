//! The list of checks. Each names the capability it needs, if any; nothing else may leave it out.

pub(crate) mod archives;
pub(crate) mod commands;
pub(crate) mod escape;
pub(crate) mod files;
pub(crate) mod files_harm;
pub(crate) mod isolation;
pub(crate) mod life;
pub(crate) mod lifetimes;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod observation;
pub(crate) mod pausing;
pub(crate) mod ports;
pub(crate) mod ssh;
pub(crate) mod terminals;

use crate::subject::Subject;
use futures::future::BoxFuture;
use handler_types::lifetime::Capabilities;
use std::sync::Arc;

/// Groups in the table's order: name, heading.
pub(crate) const GROUPS: &[(&str, &str)] = &[
    ("isolation", "Isolation"),
    ("network", "Network and secrets"),
    ("escape", "Ways out that must not be"),
    ("limits", "Limits and confinement"),
    ("commands", "Commands"),
    ("life", "Life"),
    ("files", "Files"),
    ("archives", "Archives"),
    ("lifetimes", "Lifetimes"),
    ("terminals", "Terminals"),
    ("ports", "Ports and previews"),
    ("ssh", "SSH"),
    ("observation", "Observation"),
];

/// A capability that a check needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// What it is called when it is lacking.
    pub(crate) name: &'static str,
    /// Whether the engine declares it.
    pub(crate) has: fn(&Capabilities) -> bool,
}

/// What a check does.
pub(crate) type Run = fn(Arc<Subject>) -> BoxFuture<'static, anyhow::Result<()>>;

/// A check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub(crate) group: &'static str,
    /// A sentence in snake case.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: Run,
}

impl Check {
    /// Its identity.
    pub(crate) fn id(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Its sentence.
    pub(crate) fn title(&self) -> String {
        self.name.replace('_', " ")
    }

    /// The capability the set-up lacks, in words.
    pub(crate) fn lacks(&self, subject: &Subject) -> Option<String> {
        self.needs
            .iter()
            .find(|need| !(need.has)(&subject.capabilities))
            .map(|need| need.name.to_owned())
    }
}

/// Lists checks: `name` or `name [NEED, …]`.
macro_rules! checks {
    ($group:literal: $($name:ident $([$($need:expr),*])?;)*) => {
        pub(crate) fn all() -> Vec<$crate::checks::Check> {
            vec![$(
                $crate::checks::Check {
                    group: $group,
                    name: stringify!($name),
                    needs: &[$($($need),*)?],
                    run: |subject| Box::pin($name(subject)),
                },
            )*]
        }
    };
}
pub(crate) use checks;

/// All checks.
pub(crate) fn all() -> Vec<Check> {
    [
        isolation::all(),
        network::all(),
        escape::all(),
        limits::all(),
        commands::all(),
        life::all(),
        files::all(),
        files_harm::all(),
        archives::all(),
        lifetimes::all(),
        pausing::all(),
        terminals::all(),
        ports::all(),
        ssh::all(),
        observation::all(),
    ]
    .concat()
}
