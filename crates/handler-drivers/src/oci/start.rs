//! Starting an instance: create and start are the only calls to the engine; undone when a step fails.

use super::api::OciUse;
use super::error::OciError;
use super::identity::Identity;
use super::info::EngineInfo;
use super::paths::HostPaths;
use super::plan::{self, Etc, Facts, ImageEnv, Limits};
use super::{
    OciDriver, Reference, containers, ending, labels, link, prepare, sources, transparent,
};
use crate::native::plan::{check_own_folders, check_owner};
use handler_engine::driver::{DriverError, Instance, InstancePlan};
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{Resources, SandboxSpec};
use std::time::Duration;

/// Least limits that make sense, as native has them.
const LEAST_MEMORY_MIB: u64 = 16;
const LEAST_CPUS: f64 = 0.05;
const LEAST_PIDS: u64 = 8;
/// Until the first look at whether a container that says nothing still runs, and between looks.
const SILENCE: Duration = Duration::from_millis(700);

/// Starts; when it fails, nothing is left but what lies in the instance's own folders.
pub(super) async fn start(
    driver: &OciDriver,
    plan: &InstancePlan,
) -> Result<Instance, DriverError> {
    check_owner(&plan.owner)?;
    let info = driver.info().await?;
    plan::check(&plan.spec, driver.name(), Some(&info))?;
    check_own_folders(plan)?;
    let engine = driver
        .api
        .connect()
        .await
        .map_err(|error| error.at("connect"))?;
    driver.mark_used()?;
    let paths = HostPaths::of(plan);
    let facts = Facts {
        etc: etc_of(driver, &engine, plan, &paths).await?,
        ..facts(driver, &engine, &info, &plan.spec).await?
    };
    let first = attempt(driver, plan, &paths, &facts).await;
    let started = match first {
        Err(error) if plan.spec.runtime.is_none() && is_runtimes_fault(&error) => {
            with_another(driver, plan, &paths, &facts, &info, error).await
        }
        other => other,
    };
    let reference = started?;
    Ok(Instance {
        reference: serde_json::to_value(reference).map_err(|error| DriverError::Failed {
            step: "reference".to_owned(),
            message: error.to_string(),
        })?,
        guest_socket: paths.socket,
        warnings: warnings(plan, &info, facts.identity),
        transparent: Some(transparent::view(plan)),
    })
}

async fn facts(
    driver: &OciDriver,
    engine: &OciUse,
    info: &EngineInfo,
    spec: &SandboxSpec,
) -> Result<Facts, DriverError> {
    let of_image = match &spec.image {
        Some(image) => driver.image_env(engine, &image.id).await?,
        None => ImageEnv::default(),
    };
    let asked = spec
        .runtime
        .as_deref()
        .map(|name| info.engine_runtime(name, matches!(spec.network, NetworkPolicy::Open)));
    Ok(Facts {
        identity: Identity::decide(spec.scope.as_deref()),
        keep_id: info.rootless && info.flavour == super::Flavour::Podman,
        guest_program: driver.config.guest_program.clone(),
        of_image,
        runtime: asked.or_else(|| driver.preferred_runtime()),
        limits: limits(&spec.resources, info)?,
        etc: Etc::default(),
    })
}

/// Limits that the engine enforces; the others have been refused or are told in the warnings.
fn limits(asked: &Resources, info: &EngineInfo) -> Result<Limits, DriverError> {
    let invalid = |text: &str| Err(DriverError::Invalid(text.to_owned()));
    if asked
        .memory_mib
        .is_some_and(|mib| !(LEAST_MEMORY_MIB..1 << 40).contains(&mib))
    {
        return invalid("memory: at least 16 MiB");
    }
    if asked
        .cpus
        .is_some_and(|cpus| !(LEAST_CPUS..=100_000.0).contains(&cpus))
    {
        return invalid("CPUs: at least 0.05");
    }
    if asked
        .pids
        .is_some_and(|pids| !(LEAST_PIDS..1 << 40).contains(&pids))
    {
        return invalid("processes: at least 8");
    }
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    let nano = |cpus: f64| (cpus * 1e9) as i64;
    Ok(Limits {
        memory: asked
            .memory_mib
            .filter(|_| info.memory_limit)
            .map(|mib| whole(mib << 20)),
        nano_cpus: asked.cpus.filter(|_| info.cpu_limit).map(nano),
        pids: asked.pids.filter(|_| info.pids_limit).map(whole),
    })
}

/// A container runtime that cannot work on this machine, whatever it is asked to run.
fn is_runtimes_fault(error: &DriverError) -> bool {
    let DriverError::Failed { step, message } = error else {
        return false;
    };
    let told = [
        "OCI runtime",
        "runtime create failed",
        "cgroups in hybrid mode",
        "crun:",
    ];
    matches!(step.as_str(), "start" | "create") && told.iter().any(|words| message.contains(words))
}

/// The engine's own choice of runtime does not work here: another one is tried, and kept when it does.
async fn with_another(
    driver: &OciDriver,
    plan: &InstancePlan,
    paths: &HostPaths,
    facts: &Facts,
    info: &EngineInfo,
    error: DriverError,
) -> Result<Reference, DriverError> {
    let used = facts
        .runtime
        .clone()
        .unwrap_or_else(|| info.default_runtime.clone());
    for name in ["runc", "crun"].into_iter().filter(|name| *name != used) {
        if info.runtime(name).is_err() {
            continue;
        }
        let facts = Facts {
            runtime: Some(name.to_owned()),
            ..facts.clone()
        };
        if let Ok(reference) = attempt(driver, plan, paths, &facts).await {
            tracing::warn!(runtime = name, instead_of = %used, %error, "the engine's runtime does not work here");
            driver.prefer_runtime(name);
            return Ok(reference);
        }
    }
    Err(error)
}

async fn attempt(
    driver: &OciDriver,
    plan: &InstancePlan,
    paths: &HostPaths,
    facts: &Facts,
) -> Result<Reference, DriverError> {
    let built = plan::build(plan, paths, facts)?;
    let sources = sources::open(&plan.spec)?;
    prepare::prepare(plan, paths, &built, driver.config.extra_ca_file.as_deref())?;
    // Podman before version 6 takes the runtime from its service, not from the request.
    let api = driver.api.with_runtime(facts.runtime.as_deref());
    let engine = &api.connect().await.map_err(|error| error.at("connect"))?;
    let id = containers::create(engine, driver.api.flavour(), &built.container)
        .await
        .map_err(|error| refusal(error, plan, "create"))?;
    let result = async {
        containers::start(engine, &id)
            .await
            .map_err(|error| refusal(error, plan, "start"))?;
        let process = speak(engine, &id, paths).await?;
        if let Some(process) = process {
            sources::compare(&sources, process)?;
        }
        Ok(process)
    }
    .await;
    match result {
        Ok(process) => Ok(Reference {
            container: id,
            process,
            home: paths.home.clone(),
            foreign_files: plan.spec.confinement != handler_types::sandbox::Confinement::Strict,
        }),
        Err(error) => {
            if let Err(left) = ending::remove(engine, &id).await {
                tracing::error!(id = %plan.id, error = %left, "a failed start left a container");
            }
            std::fs::remove_file(&paths.socket).ok();
            Err(error)
        }
    }
}

/// The users of an image: read once, kept in memory.
async fn etc_of(
    driver: &OciDriver,
    engine: &OciUse,
    plan: &InstancePlan,
    paths: &HostPaths,
) -> Result<Etc, DriverError> {
    let Some(image) = &plan.spec.image else {
        return Ok(Etc::default());
    };
    if let Some(etc) = driver.known_etc(&image.id) {
        return Ok(etc);
    }
    let labels = labels::of(plan, &paths.home);
    let wanted = ["/etc/passwd", "/etc/group"];
    let read = containers::read_image(engine, &image.id, labels, wanted).await;
    let read = read.map_err(|error| refusal(error, plan, "create"))?;
    let [passwd, group] = read.map(Option::unwrap_or_default);
    let etc = Etc { passwd, group };
    driver.learn_etc(&image.id, etc.clone());
    Ok(etc)
}

/// Waits until the guest listens, or its container has ended.
async fn speak(
    engine: &OciUse,
    id: &str,
    paths: &HostPaths,
) -> Result<Option<crate::native::process::ProcessId>, DriverError> {
    let failed = |message: String| DriverError::Failed {
        step: "guest".to_owned(),
        message,
    };
    tokio::select! {
        taken = link::take(paths) => match taken {
            Ok(process) => Ok(process),
            Err(error) => {
                let words = containers::last_words(engine, id).await;
                Err(failed(format!("{error} {words}")))
            }
        },
        () = ended(engine, id) => {
            let words = containers::last_words(engine, id).await;
            Err(failed(format!("the container ended at once: {words}")))
        }
    }
}

async fn ended(engine: &OciUse, id: &str) {
    loop {
        tokio::time::sleep(SILENCE).await;
        if matches!(containers::state(engine, id).await, Ok((false, _))) {
            return;
        }
    }
}

/// Whose fault a refusal is.
fn refusal(error: OciError, plan: &InstancePlan, step: &str) -> DriverError {
    let OciError::Refused { status, message } = &error else {
        return error.at(step);
    };
    let no_image = message.contains("no such image")
        || message.contains("No such image")
        || message.contains("image not known");
    if (*status == 404 || *status == 500) && no_image {
        let name = plan
            .spec
            .image
            .as_ref()
            .map_or("", |image| image.reference.as_str());
        return DriverError::Invalid(format!(
            "the image `{name}` is not there any more: get it again"
        ));
    }
    error.at(step)
}

fn warnings(plan: &InstancePlan, info: &EngineInfo, identity: Identity) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut all = plan::limits_missing(&plan.spec, info);
    let scope = plan.spec.scope.as_deref();
    let owner = scope.and_then(|scope| std::fs::metadata(scope).ok());
    if let (Some(scope), Some(data)) = (scope, owner)
        && identity.is_foreign()
        && data.uid() != identity.uid
        && data.mode() & 0o002 == 0
    {
        all.push(format!(
            "{scope} belongs to root, and sandboxes never run as root (this one as user {}): what is not open to \
             everyone there cannot be changed. Give the folder to an ordinary user.",
            identity.uid
        ));
    }
    all
}
