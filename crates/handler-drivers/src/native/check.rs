//! Whether this host can run native sandboxes: tried for real, and said in words with what to do.

use super::advice::{self, Sysctls};
use super::cgroup::CgroupFolders;
use super::{NativeConfig, NativeDriver, api, transparent};
use handler_engine::driver::DriverError;
use handler_types::api::{CheckStatus, HostCheck};
use handler_types::launch::LaunchAnswer;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a result counts.
const FRESH: Duration = Duration::from_secs(10);
/// Free space under which starting makes no sense, and under which it is worth a word, in MiB.
const LEAST_FREE_MIB: u64 = 64;
const LOW_FREE_MIB: u64 = 2048;
/// Oldest kernel with `mount_setattr`.
const LEAST_KERNEL: (u32, u32) = (5, 12);

/// The last result, for as long as it is fresh.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Option<(Instant, Vec<HostCheck>)>>);

impl Cache {
    /// All checks; run again when the last result is old.
    pub(super) async fn get(
        &self,
        config: &NativeConfig,
        cgroups: &CgroupFolders,
    ) -> Vec<HostCheck> {
        let mut last = self.0.lock().await;
        if let Some((at, checks)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return checks.clone();
        }
        let checks = run(config, cgroups).await;
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

/// After a failed start: the host's fault if a check fails, else the step as it was.
pub(super) async fn explain(driver: &NativeDriver, step: String, message: String) -> DriverError {
    // Not from the cache: the host may have changed since, which is why the start failed.
    let mut checks = vec![kernel(), disk(&driver.config)];
    checks.extend(rehearsal(&driver.config).await);
    let failed: Vec<String> = checks
        .iter()
        .filter(|check| check.status == CheckStatus::Failed)
        .map(|check| match &check.mend {
            Some(mend) => format!("{}: {}. {mend}", check.name, check.detail),
            None => format!("{}: {}", check.name, check.detail),
        })
        .collect();
    if failed.is_empty() {
        DriverError::Failed { step, message }
    } else {
        DriverError::HostNotReady(failed.join(" "))
    }
}

const NODE: &str = "Harnesses need Node 22 or newer; it is brought along where the host has none.";
const NPM: &str = "It is needed once, to install harnesses.";

async fn run(config: &NativeConfig, cgroups: &CgroupFolders) -> Vec<HostCheck> {
    let (rehearsal, images, transparent, node, npm) = tokio::join!(
        rehearsal(config),
        image_roots(config),
        transparent::check(config),
        program("node", NODE),
        program("npm", NPM)
    );
    let mut checks = vec![kernel()];
    checks.extend(rehearsal);
    checks.extend(images);
    checks.extend([transparent, limits(cgroups), disk(config), node, npm]);
    checks
}

fn check(
    name: &str,
    status: CheckStatus,
    detail: impl Into<String>,
    mend: Option<&str>,
) -> HostCheck {
    HostCheck {
        name: name.to_owned(),
        status,
        detail: detail.into(),
        mend: mend.map(str::to_owned),
    }
}

fn kernel() -> HostCheck {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let version = (numbers.next(), numbers.next());
    let is_old =
        matches!(version, (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < LEAST_KERNEL);
    let status = if is_old {
        CheckStatus::Failed
    } else {
        CheckStatus::Ok
    };
    let mend = is_old.then_some("Linux 5.12 or newer is needed.");
    check("kernel", status, format!("Linux {release}"), mend)
}

/// Namespaces, file tree, lockdown: tried by the guest program itself.
async fn rehearsal(config: &NativeConfig) -> Vec<HostCheck> {
    match api::probe(&config.guest_program).await {
        Ok(LaunchAnswer::Ready { .. }) => advice::STAGES
            .iter()
            .map(|stage| check(stage, CheckStatus::Ok, "tried, works", None))
            .collect(),
        Ok(LaunchAnswer::Failed {
            step,
            message,
            errno,
        }) => {
            let advice = advice::advice(&step, errno, &Sysctls::read());
            let failed = advice::STAGES
                .iter()
                .position(|stage| *stage == advice.stage);
            let before = advice::STAGES.iter().take(failed.unwrap_or(0));
            let mut checks: Vec<HostCheck> = before
                .map(|stage| check(stage, CheckStatus::Ok, "tried, works", None))
                .collect();
            let detail = format!("{step}: {message}");
            checks.push(check(
                advice.stage,
                CheckStatus::Failed,
                detail,
                Some(&advice.mend),
            ));
            checks
        }
        Err(error) => {
            let mend = Some("Install Handler again; the guest program belongs to it.");
            vec![check(
                "guest program",
                CheckStatus::Failed,
                error.to_string(),
                mend,
            )]
        }
    }
}

const NO_IMAGES: &str = "Native sandboxes start without an image all the same. For images, Linux 5.11 or newer with overlayfs \
    is needed, or the podman backend.";

/// Whether images can be roots; nothing to say where there is no image store.
async fn image_roots(config: &NativeConfig) -> Option<HostCheck> {
    config.images.as_ref()?;
    let detail = match api::probe_images(&config.guest_program).await {
        Ok(LaunchAnswer::Ready { .. }) => {
            return Some(check("image roots", CheckStatus::Ok, "tried, works", None));
        }
        Ok(LaunchAnswer::Failed { step, message, .. }) => format!("{step}: {message}"),
        Err(error) => error.to_string(),
    };
    Some(check(
        "image roots",
        CheckStatus::Warning,
        detail,
        Some(NO_IMAGES),
    ))
}

fn limits(cgroups: &CgroupFolders) -> HostCheck {
    let obstacles = cgroups.obstacles();
    let missing: Vec<String> = obstacles
        .iter()
        .filter_map(|(name, why)| why.as_ref().map(|why| format!("{name}: {why}")))
        .collect();
    if missing.is_empty() {
        return check(
            "limits",
            CheckStatus::Ok,
            "memory, cpu and pids can be limited",
            None,
        );
    }
    let mend = "Sandboxes run without these limits. Run the daemon as root, or in a systemd unit with Delegate=yes (for a user: systemd-run --user --scope -p Delegate=yes).";
    check(
        "limits",
        CheckStatus::Warning,
        missing.join("; "),
        Some(mend),
    )
}

fn disk(config: &NativeConfig) -> HostCheck {
    let path = config.state_dir.display();
    let free = match rustix::fs::statvfs(&config.state_dir) {
        Ok(stat) => (stat.f_bavail.saturating_mul(stat.f_frsize)) >> 20,
        Err(error) => {
            let detail = format!("{path}: {}", std::io::Error::from(error));
            return check("disk space", CheckStatus::Warning, detail, None);
        }
    };
    let (status, mend) = match free {
        0..LEAST_FREE_MIB => (
            CheckStatus::Failed,
            Some("Make room: homes of sandboxes live there."),
        ),
        LEAST_FREE_MIB..LOW_FREE_MIB => (
            CheckStatus::Warning,
            Some("Homes of sandboxes live there; make room soon."),
        ),
        _ => (CheckStatus::Ok, None),
    };
    check(
        "disk space",
        status,
        format!("{free} MiB free in {path}"),
        mend,
    )
}

/// Version of a program on the daemon's `PATH`; being without it is a warning at most.
async fn program(name: &str, mend: &str) -> HostCheck {
    let run = handler_base::proc::command(name).arg("--version").output();
    match tokio::time::timeout(Duration::from_secs(5), run).await {
        Ok(Ok(output)) if output.status.success() => {
            let text: String = String::from_utf8_lossy(&output.stdout)
                .chars()
                .take(80)
                .collect();
            check(name, CheckStatus::Ok, text.trim(), None)
        }
        Ok(Ok(output)) => check(
            name,
            CheckStatus::Warning,
            format!("it fails: {}", output.status),
            Some(mend),
        ),
        Ok(Err(_)) => check(name, CheckStatus::Warning, "not found", Some(mend)),
        Err(_) => check(
            name,
            CheckStatus::Warning,
            "no answer within 5 s",
            Some(mend),
        ),
    }
}
