//! Flags that say what a sandbox may reach.

use crate::exit::Failure;
use clap::{Args, ValueEnum};
use handler_types::network::{AllowEntry, Enforcement, NetworkPolicy};

/// The modes as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Loopback only
    None,
    /// Only allowed hosts
    Filtered,
    /// Any public host
    Open,
}

/// What it may reach.
#[derive(Debug, Clone, Default, Args)]
pub struct NetworkArgs {
    /// What it may reach (default: filtered)
    #[arg(long, value_enum)]
    pub network: Option<Mode>,
    /// Allow a destination, e.g. `example.com:443` or `*.example.com:443` (repeatable)
    #[arg(long, value_name = "HOST:PORT")]
    pub allow: Vec<AllowEntry>,
    /// Let everything through and list what would have been denied
    #[arg(long)]
    pub log_only: bool,
}

impl NetworkArgs {
    /// The policy, if anything was said.
    ///
    /// # Errors
    /// Flags that contradict each other.
    pub fn policy(&self) -> Result<Option<NetworkPolicy>, Failure> {
        let filters = !self.allow.is_empty() || self.log_only;
        let mode = match self.network {
            None if !filters => return Ok(None),
            None => Mode::Filtered,
            Some(mode) => mode,
        };
        if mode != Mode::Filtered && filters {
            return Err(Failure::Usage(
                "--allow and --log-only go with --network filtered".into(),
            ));
        }
        let enforcement = if self.log_only {
            Enforcement::LogOnly
        } else {
            Enforcement::Enforce
        };
        Ok(Some(match mode {
            Mode::None => NetworkPolicy::None,
            Mode::Open => NetworkPolicy::Open,
            Mode::Filtered => NetworkPolicy::Filtered {
                allow: self.allow.clone(),
                enforcement,
            },
        }))
    }
}

/// A policy in one word or a few.
#[must_use]
pub fn describe(policy: &NetworkPolicy) -> String {
    match policy {
        NetworkPolicy::None => "none".into(),
        NetworkPolicy::Open => "open".into(),
        NetworkPolicy::Filtered { allow, enforcement } => {
            let entries = allow
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ");
            let mode = if *enforcement == Enforcement::LogOnly {
                "log-only"
            } else {
                "filtered"
            };
            if entries.is_empty() {
                mode.into()
            } else {
                format!("{mode}: {entries}")
            }
        }
    }
}
