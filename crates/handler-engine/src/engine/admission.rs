//! Whether this host takes another sandbox on. The decision is pure; [`Books`] is where it gets its figures.
//!
//! Invariant: what is decided is entered under the same lock, so that two requests cannot share the last place.

use super::config::EngineConfig;
use super::gate::FairGate;
use super::shared::Entry;
use crate::driver::DriverError;
use crate::error::EngineError;
use handler_types::SandboxId;
use handler_types::limits::{Committed, HostView, Limits, Quota};
use handler_types::sandbox::{Resources, SandboxSpec};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// When somebody who was refused should ask again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Says what this host hands out, whenever it is asked: settings may change while it runs.
pub trait LimitsSource: Send + Sync + std::fmt::Debug {
    /// The limits now.
    fn now(&self) -> Arc<Limits>;

    /// Why the settings are not what holds.
    fn problem(&self) -> Option<String> {
        None
    }
}

impl LimitsSource for Limits {
    fn now(&self) -> Arc<Limits> {
        Arc::new(self.clone())
    }
}

/// How large the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostSize {
    /// Memory, MiB.
    pub(super) memory_mib: u64,
    /// CPUs.
    pub(super) cpus: u64,
}

impl HostSize {
    /// This machine's; memory is 0 when it cannot be read, which hands out none by percentage.
    #[must_use]
    pub(super) fn of_this_machine() -> Self {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            memory_mib: kib.unwrap_or(0) / 1024,
            cpus: u64::try_from(cpus).unwrap_or(1),
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ask<'a> {
    /// It is another sandbox (else one that exists starts, or wants more).
    pub(super) is_new: bool,
    /// It takes another place among the running.
    pub(super) is_start: bool,
    /// Memory, MiB; none: no limit asked for.
    pub(super) memory_mib: Option<u64>,
    /// CPUs; none: no limit asked for.
    pub(super) cpus: Option<f64>,
    /// The project it counts for.
    pub(super) project: Option<&'a str>,
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not now.
    Full(String),
    /// Never, as it stands.
    TooLarge(String),
}

/// Memory handed out in all, MiB.
#[must_use]
pub(super) fn memory_limit(limits: &Limits, host: HostSize) -> u64 {
    limits
        .memory_mib
        .unwrap_or_else(|| host.memory_mib.saturating_mul(limits.memory_percent) / 100)
}

/// CPUs handed out in all.
#[must_use]
pub(super) fn cpu_limit(limits: &Limits, host: HostSize) -> f64 {
    // A number of processors is far below 2^52.
    host.cpus as f64 * limits.cpu_oversubscription
}

/// Decides.
///
/// # Errors
/// [`Refusal`], in words that say what is used up and what to do.
pub(super) fn decide(
    limits: &Limits,
    host: HostSize,
    all: &Committed,
    in_project: &Committed,
    ask: &Ask<'_>,
) -> Result<(), Refusal> {
    let whole = Quota {
        sandboxes: limits.sandboxes,
        running: limits.running,
        memory_mib: Some(memory_limit(limits, host)),
        cpus: Some(cpu_limit(limits, host)),
    };
    let memory = ask.memory_mib.unwrap_or(limits.default_memory_mib);
    check("this host", &whole, all, ask, memory)?;
    let Some(project) = ask.project else {
        return Ok(());
    };
    let quota = limits.projects.get(project);
    let quota = quota.unwrap_or(&limits.project_default);
    check(
        &format!("project `{project}`"),
        quota,
        in_project,
        ask,
        memory,
    )
}

fn check(
    whose: &str,
    quota: &Quota,
    used: &Committed,
    ask: &Ask<'_>,
    memory: u64,
) -> Result<(), Refusal> {
    if ask.is_new
        && let Some(most) = quota.sandboxes
        && used.sandboxes >= most
    {
        return Err(Refusal::Full(format!(
            "{whose} has {most} sandboxes, as many as it may; remove one first"
        )));
    }
    if ask.is_start
        && let Some(most) = quota.running
        && used.running >= most
    {
        return Err(Refusal::Full(format!(
            "{whose} has {most} running sandboxes, as many as it may; stop or remove one first"
        )));
    }
    if memory > 0
        && let Some(most) = quota.memory_mib
    {
        if memory > most {
            return Err(Refusal::TooLarge(format!(
                "{memory} MiB of memory is more than {whose} hands out in all ({most} MiB)"
            )));
        }
        if used.memory_mib.saturating_add(memory) > most {
            return Err(Refusal::Full(format!(
                "{} of {most} MiB of memory of {whose} are handed out, {memory} MiB more do not fit; \
                 stop a sandbox, or ask for less",
                used.memory_mib
            )));
        }
    }
    let (Some(cpus), Some(most)) = (ask.cpus, quota.cpus) else {
        return Ok(());
    };
    if cpus > most {
        return Err(Refusal::TooLarge(format!(
            "{cpus} CPUs are more than {whose} hands out in all ({most})"
        )));
    }
    // Sums of tenths are not exact.
    if used.cpus + cpus > most + 1e-6 {
        return Err(Refusal::Full(format!(
            "{:.2} of {most} CPUs of {whose} are handed out, {cpus} more do not fit; stop a sandbox, or ask for less",
            used.cpus
        )));
    }
    Ok(())
}

/// The host's figures.
#[derive(Debug)]
pub(super) struct Books {
    source: Arc<dyn LimitsSource>,
    host: HostSize,
    pub(super) gate: Arc<FairGate>,
}

impl Books {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let limits = config.limits.now();
        Self {
            source: config.limits.clone(),
            host: HostSize::of_this_machine(),
            gate: FairGate::new(limits.starts_at_once, limits.starts_waiting),
        }
    }

    /// The limits now; the gate follows them.
    fn limits(&self) -> Arc<Limits> {
        let limits = self.source.now();
        self.gate
            .resize(limits.starts_at_once, limits.starts_waiting);
        limits
    }

    /// Decides about a spec; `apart` is the sandbox itself, when it exists.
    pub(super) fn admit(
        &self,
        registry: &HashMap<SandboxId, Entry>,
        spec: &SandboxSpec,
        apart: Option<&SandboxId>,
        is_start: bool,
    ) -> Result<(), EngineError> {
        let limits = self.limits();
        let (mut all, mut in_project) = (Committed::default(), Committed::default());
        for (id, entry) in registry {
            if Some(id) == apart {
                continue;
            }
            count(&mut all, entry, &limits);
            if entry.row.spec.project == spec.project {
                count(&mut in_project, entry, &limits);
            }
        }
        let Resources {
            memory_mib, cpus, ..
        } = spec.resources;
        let ask = Ask {
            is_new: apart.is_none(),
            is_start,
            memory_mib,
            cpus,
            project: spec.project.as_deref(),
        };
        decide(&limits, self.host, &all, &in_project, &ask).map_err(|refusal| match refusal {
            Refusal::Full(message) => EngineError::TooMany {
                message,
                retry_after: ASK_AGAIN,
            },
            Refusal::TooLarge(message) => DriverError::Unenforceable(message).into(),
        })
    }

    pub(super) fn view(&self, registry: &HashMap<SandboxId, Entry>) -> HostView {
        let limits = self.limits();
        let mut committed = Committed::default();
        let mut projects: BTreeMap<String, Committed> = BTreeMap::new();
        for entry in registry.values() {
            count(&mut committed, entry, &limits);
            if let Some(project) = &entry.row.spec.project {
                count(projects.entry(project.clone()).or_default(), entry, &limits);
            }
        }
        let (starting, waiting) = self.gate.figures();
        HostView {
            memory_mib: self.host.memory_mib,
            cpus: self.host.cpus,
            memory_limit_mib: memory_limit(&limits, self.host),
            cpu_limit: cpu_limit(&limits, self.host),
            limits: (*limits).clone(),
            committed,
            projects,
            starting,
            waiting,
            limits_problem: self.source.problem(),
        }
    }
}

fn count(sum: &mut Committed, entry: &Entry, limits: &Limits) {
    sum.sandboxes += 1;
    if !entry.is_up {
        return;
    }
    let resources = entry.row.spec.resources;
    let memory = resources.memory_mib.unwrap_or(limits.default_memory_mib);
    sum.running += 1;
    sum.memory_mib = sum.memory_mib.saturating_add(memory);
    sum.cpus += resources.cpus.unwrap_or(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostSize = HostSize {
        memory_mib: 10_000,
        cpus: 4,
    };

    fn ask(memory_mib: Option<u64>, cpus: Option<f64>) -> Ask<'static> {
        Ask {
            is_new: true,
            is_start: true,
            memory_mib,
            cpus,
            project: Some("p"),
        }
    }

    fn used(sandboxes: u64, running: u64, memory_mib: u64, cpus: f64) -> Committed {
        Committed {
            sandboxes,
            running,
            memory_mib,
            cpus,
        }
    }

    fn outcome(limits: &Limits, all: Committed, project: Committed, ask: &Ask<'_>) -> &'static str {
        match decide(limits, HOST, &all, &project, ask) {
            Ok(()) => "in",
            Err(Refusal::Full(_)) => "full",
            Err(Refusal::TooLarge(_)) => "never",
        }
    }

    #[test]
    fn the_defaults_limit_only_what_is_asked_for() {
        let limits = Limits::default();
        let none = Committed::default();
        for (all, ask, wanted) in [
            (used(9999, 9999, 9000, 32.0), ask(None, None), "in"),
            (used(0, 0, 0, 0.0), ask(Some(9000), Some(32.0)), "in"),
            (used(0, 0, 0, 0.0), ask(Some(9001), None), "never"),
            (used(1, 1, 8500, 0.0), ask(Some(500), None), "in"),
            (used(1, 1, 8501, 0.0), ask(Some(500), None), "full"),
            (used(1, 1, 0, 31.5), ask(None, Some(0.5)), "in"),
            (used(1, 1, 0, 31.6), ask(None, Some(0.5)), "full"),
            (used(1, 1, 0, 0.0), ask(None, Some(32.1)), "never"),
        ] {
            assert_eq!(outcome(&limits, all, none, &ask), wanted, "{all:?} {ask:?}");
        }
    }

    #[test]
    fn counts_and_projects_have_limits_of_their_own() {
        let limits = Limits {
            sandboxes: Some(10),
            running: Some(4),
            default_memory_mib: 100,
            project_default: Quota {
                sandboxes: Some(3),
                ..Quota::default()
            },
            projects: BTreeMap::from([(
                "p".to_owned(),
                Quota {
                    running: Some(2),
                    memory_mib: Some(250),
                    ..Quota::default()
                },
            )]),
            ..Limits::default()
        };
        let free = Committed::default();
        let new = ask(None, None);
        let start = Ask {
            is_new: false,
            ..new
        };
        let other = Ask {
            project: Some("q"),
            ..new
        };
        let nobody = Ask {
            project: None,
            ..new
        };
        for (all, project, ask, wanted) in [
            (used(10, 0, 0, 0.0), free, new, "full"),
            (used(10, 0, 0, 0.0), free, start, "in"),
            (used(10, 4, 0, 0.0), free, start, "full"),
            (used(9, 3, 0, 0.0), free, new, "in"),
            (used(5, 2, 0, 0.0), used(5, 2, 0, 0.0), new, "full"),
            (used(5, 1, 0, 0.0), used(5, 1, 150, 0.0), new, "in"),
            (used(5, 1, 0, 0.0), used(5, 1, 151, 0.0), new, "full"),
            (used(5, 1, 0, 0.0), used(3, 1, 0, 0.0), other, "full"),
            (used(5, 1, 0, 0.0), used(3, 1, 0, 0.0), nobody, "in"),
        ] {
            assert_eq!(
                outcome(&limits, all, project, &ask),
                wanted,
                "{all:?} {project:?} {ask:?}"
            );
        }
    }

    #[test]
    fn this_machine_has_memory_and_processors() {
        let host = HostSize::of_this_machine();
        assert!(host.memory_mib > 64 && host.cpus > 0, "{host:?}");
    }
}
