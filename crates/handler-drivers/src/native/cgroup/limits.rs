//! Limits as the kernel's files want them: pure.

use super::layout::Controller;
use handler_types::sandbox::Resources;

/// Processes a sandbox may have when nothing was asked for (against fork bombs).
pub(in crate::native) const DEFAULT_PIDS: u64 = 4096;
/// Smallest limits accepted.
const LEAST_MEMORY_MIB: u64 = 16;
const LEAST_CPUS: f64 = 0.05;
const LEAST_PIDS: u64 = 8;
/// Largest limits that have a meaning.
const MOST_MEMORY_MIB: u64 = 1 << 30;
const MOST_CPUS: f64 = 10_000.0;
const MOST_PIDS: u64 = 4_000_000;
/// Period of processor quotas, in microseconds.
const PERIOD_US: u64 = 100_000;

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::native) struct Limit {
    /// Of what.
    pub(in crate::native) controller: Controller,
    /// Bytes, processes, or microseconds per period.
    pub(in crate::native) value: u64,
    /// Whether somebody asked for it (else it is a default, and doing without is no news).
    pub(in crate::native) asked: bool,
}

/// The limits to set, or what is wrong with them.
pub(in crate::native) fn of(resources: &Resources) -> Result<Vec<Limit>, String> {
    let mut limits = Vec::new();
    if let Some(mib) = resources.memory_mib {
        if !(LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&mib) {
            return Err(format!(
                "memory must be at least {LEAST_MEMORY_MIB} MiB, not {mib}"
            ));
        }
        limits.push(Limit {
            controller: Controller::Memory,
            value: mib << 20,
            asked: true,
        });
    }
    if let Some(cpus) = resources.cpus {
        if !(LEAST_CPUS..=MOST_CPUS).contains(&cpus) {
            return Err(format!("cpus must be at least {LEAST_CPUS}, not {cpus}"));
        }
        // In range, so the product is positive and far below 2^53.
        let value = (cpus * PERIOD_US as f64).round() as u64;
        limits.push(Limit {
            controller: Controller::Cpu,
            value,
            asked: true,
        });
    }
    let pids = resources.pids.unwrap_or(DEFAULT_PIDS);
    if !(LEAST_PIDS..=MOST_PIDS).contains(&pids) {
        return Err(format!("pids must be at least {LEAST_PIDS}, not {pids}"));
    }
    let asked = resources.pids.is_some();
    limits.push(Limit {
        controller: Controller::Pids,
        value: pids,
        asked,
    });
    Ok(limits)
}

/// A file of a cgroup folder and what to write into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::native) struct Setting {
    /// Its name.
    pub(in crate::native) file: &'static str,
    /// Its text.
    pub(in crate::native) text: String,
    /// Whether a kernel may be without it.
    pub(in crate::native) optional: bool,
}

impl Limit {
    /// What to write in a version 2 group.
    pub(in crate::native) fn v2(&self) -> Vec<Setting> {
        let value = self.value;
        match self.controller {
            Controller::Memory => vec![
                must("memory.max", value.to_string()),
                may("memory.swap.max", "0".to_owned()),
            ],
            Controller::Cpu => vec![must("cpu.max", format!("{value} {PERIOD_US}"))],
            Controller::Pids => vec![must("pids.max", value.to_string())],
        }
    }

    /// What to write in a version 1 group.
    pub(in crate::native) fn v1(&self) -> Vec<Setting> {
        let value = self.value.to_string();
        match self.controller {
            Controller::Memory => vec![
                must("memory.limit_in_bytes", value.clone()),
                // Memory and swap together, after the first (which must not be above it).
                may("memory.memsw.limit_in_bytes", value),
            ],
            Controller::Cpu => vec![
                must("cpu.cfs_period_us", PERIOD_US.to_string()),
                must("cpu.cfs_quota_us", value),
            ],
            Controller::Pids => vec![must("pids.max", value)],
        }
    }
}

fn must(file: &'static str, text: String) -> Setting {
    Setting {
        file,
        text,
        optional: false,
    }
}

fn may(file: &'static str, text: String) -> Setting {
    Setting {
        file,
        text,
        optional: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_below_the_least_are_refused_in_words() {
        let with = |memory_mib, cpus, pids| {
            of(&Resources {
                memory_mib,
                cpus,
                pids,
            })
        };
        assert!(
            with(Some(15), None, None)
                .expect_err("small")
                .contains("16 MiB")
        );
        assert!(with(None, Some(0.01), None).is_err());
        assert!(with(None, Some(f64::NAN), None).is_err());
        assert!(with(None, Some(f64::INFINITY), None).is_err());
        assert!(with(None, None, Some(7)).is_err());
        assert!(with(Some(u64::MAX), None, None).is_err());
    }

    #[test]
    fn limits_are_written_as_the_kernel_wants_them() {
        let asked = Resources {
            memory_mib: Some(64),
            cpus: Some(1.5),
            pids: None,
        };
        let limits = of(&asked).expect("fine");
        assert_eq!(limits.len(), 3);
        assert_eq!(limits[0].v2()[0].text, "67108864");
        assert_eq!(limits[1].v2()[0].text, "150000 100000");
        assert_eq!(limits[1].v1()[1].text, "150000");
        assert!(!limits[2].asked);
        assert_eq!(limits[2].v1()[0].text, DEFAULT_PIDS.to_string());
    }
}
