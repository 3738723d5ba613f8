//! What `handler doctor` says of an engine: whether it answers, what it can, and a container tried for real.

use super::OciDriver;
use super::info::EngineInfo;
use super::transparent;
use handler_types::api::{CheckStatus, HostCheck};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a result counts.
const FRESH: Duration = Duration::from_secs(30);

/// The last result, for as long as it is fresh.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Option<(Instant, Vec<HostCheck>)>>);

impl Cache {
    pub(super) async fn get(&self, driver: &OciDriver) -> Vec<HostCheck> {
        let mut last = self.0.lock().await;
        if let Some((at, checks)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return checks.clone();
        }
        let checks = run(driver).await;
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

fn check(
    name: &str,
    status: CheckStatus,
    detail: impl Into<String>,
    mend: Option<String>,
) -> HostCheck {
    HostCheck {
        name: name.to_owned(),
        status,
        detail: detail.into(),
        mend,
    }
}

async fn run(driver: &OciDriver) -> Vec<HostCheck> {
    let name = driver.name();
    driver.info.forget().await;
    let info = match driver.info.get(&driver.api).await {
        Ok(info) => info,
        Err(error) => {
            let text = error.to_string();
            let (what, mend) = text.split_once(": ").unwrap_or((&text, ""));
            let mend = (!mend.is_empty()).then(|| mend.to_owned());
            return vec![check(name, CheckStatus::Failed, what, mend)];
        }
    };
    vec![
        engine(&info),
        runtime(driver, &info),
        limits(&info),
        pause(&info),
        nested(&info),
        transparent::check(&info),
    ]
}

fn engine(info: &EngineInfo) -> HostCheck {
    let kind = if info.rootless {
        "as an ordinary user"
    } else {
        "as root"
    };
    let cgroups = if info.cgroup_v1 { 1 } else { 2 };
    let detail = format!(
        "{} {} {kind}, version {cgroups} cgroups",
        info.flavour.name(),
        info.version
    );
    check(info.flavour.name(), CheckStatus::Ok, detail, None)
}

/// Which runtime is used, and which may be named.
fn runtime(driver: &OciDriver, info: &EngineInfo) -> HostCheck {
    let others: Vec<String> = info
        .runtimes
        .iter()
        .filter_map(|(name, usable)| usable.as_ref().err().map(|why| format!("{name}: {why}")))
        .collect();
    let mend = (!others.is_empty()).then(|| others.join("; "));
    let known = info.usable_runtimes().join(", ");
    match driver.preferred_runtime() {
        Some(used) => {
            let detail = format!(
                "{used} is used, since {} cannot start containers here; may be named: {known}",
                info.default_runtime
            );
            check("runtime", CheckStatus::Warning, detail, mend)
        }
        None => {
            let detail = format!("{}; may be named: {known}", info.default_runtime);
            check("runtime", CheckStatus::Ok, detail, mend)
        }
    }
}

fn limits(info: &EngineInfo) -> HostCheck {
    let all = [
        ("memory", info.memory_limit),
        ("cpu", info.cpu_limit),
        ("processes", info.pids_limit),
    ];
    let missing: Vec<&str> = all
        .iter()
        .filter(|(_, can)| !can)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return check(
            "limits",
            CheckStatus::Ok,
            "memory, cpu and processes can be limited",
            None,
        );
    }
    let detail = format!(
        "not enforced: {} ({})",
        missing.join(", "),
        info.limits_why()
    );
    let mend = "Sandboxes run without these limits. Use version 2 cgroups with delegated controllers, or run the daemon as root.";
    check(
        "limits",
        CheckStatus::Warning,
        detail,
        Some(mend.to_owned()),
    )
}

fn pause(info: &EngineInfo) -> HostCheck {
    if info.can_pause() {
        return check("pause", CheckStatus::Ok, "sandboxes can be frozen", None);
    }
    let detail = format!(
        "rootless {} cannot freeze containers with version 1 cgroups",
        info.flavour.name()
    );
    check(
        "pause",
        CheckStatus::Warning,
        detail,
        Some("Use version 2 cgroups, or run the daemon as root.".to_owned()),
    )
}

fn nested(info: &EngineInfo) -> HostCheck {
    match info.nested_obstacle() {
        None => check(
            "nested",
            CheckStatus::Ok,
            "containers can run inside sandboxes",
            None,
        ),
        Some(why) => check("nested", CheckStatus::Warning, why, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::{Flavour, OciConfig, OciSource};

    #[tokio::test]
    async fn a_missing_engine_is_said_with_what_to_do() {
        let temp = tempfile::tempdir().expect("temp");
        let source = OciSource::Socket(temp.path().join("none.sock"));
        let config = OciConfig::new(temp.path().join("guest"), temp.path().to_owned());
        let driver = OciDriver::new(Flavour::Docker, source, config);
        let checks = run(&driver).await;
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, CheckStatus::Failed);
        assert!(
            checks[0]
                .mend
                .as_ref()
                .expect("mend")
                .contains("DOCKER_HOST")
        );
    }
}
