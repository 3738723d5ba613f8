//! What this host hands out at most: limits, what is handed out now, and how both are shown.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a project may have at most. Absent: no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// Sandboxes, in whatever state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
    /// Sandboxes that run or are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Sum of memory limits of sandboxes that run or are paused, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Sum of CPU limits of sandboxes that run or are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
}

/// What this host hands out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Sandboxes, in whatever state; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
    /// Sandboxes that run or are paused; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// Sum of memory limits, MiB; absent: `memoryPercent` of the machine's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Share of the machine's memory that is handed out, percent (above 100: more than there is).
    pub memory_percent: u64,
    /// What a sandbox without a memory limit is counted with, MiB.
    pub default_memory_mib: u64,
    /// Sum of CPU limits for each CPU of the machine.
    pub cpu_oversubscription: f64,
    /// Sandboxes started at the same time; more wait their turn.
    pub starts_at_once: u32,
    /// Starts that may wait; more are refused.
    pub starts_waiting: u32,
    /// For each project that is not named below.
    #[serde(default)]
    pub project_default: Quota,
    /// For these projects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub projects: BTreeMap<String, Quota>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sandboxes: None,
            running: None,
            memory_mib: None,
            memory_percent: 90,
            default_memory_mib: 0,
            cpu_oversubscription: 8.0,
            starts_at_once: 16,
            starts_waiting: 1024,
            project_default: Quota::default(),
            projects: BTreeMap::new(),
        }
    }
}

/// What is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Committed {
    /// Sandboxes, in whatever state.
    pub sandboxes: u64,
    /// Sandboxes that run or are paused.
    pub running: u64,
    /// Sum of their memory limits, MiB.
    pub memory_mib: u64,
    /// Sum of their CPU limits.
    pub cpus: f64,
}

/// `GET /v1/host`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// The machine's memory, MiB.
    pub memory_mib: u64,
    /// The machine's CPUs.
    pub cpus: u64,
    /// What is handed out at most.
    pub limits: Limits,
    /// Memory that may be handed out in all, MiB.
    pub memory_limit_mib: u64,
    /// CPUs that may be handed out in all.
    pub cpu_limit: f64,
    /// What is handed out now.
    pub committed: Committed,
    /// The same by project, of those that have sandboxes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub projects: BTreeMap<String, Committed>,
    /// Sandboxes being started now.
    pub starting: u64,
    /// Starts that wait their turn.
    pub waiting: u64,
    /// Why the limits in the settings are not those that hold, e.g. a broken file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits_problem: Option<String>,
}
