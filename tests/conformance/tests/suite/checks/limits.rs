//! A1, A5: limits, confinement, and refusing what cannot be had.

use super::{Need, checks};
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use handler_client::ClientError;
use handler_types::ProblemCode;
use handler_types::sandbox::{Confinement, CreateSandbox, Resources};
use std::sync::Arc;

const MEMORY: Need = Need {
    name: "a memory limit",
    has: |c| c.memory_limit,
};
const CPU: Need = Need {
    name: "a CPU limit",
    has: |c| c.cpu_limit,
};
const PIDS: Need = Need {
    name: "a limit on processes",
    has: |c| c.pids_limit,
};
const PRIVILEGED: Need = Need {
    name: "confinement privileged",
    has: |c| c.privileged,
};

checks! { "limits":
    what_the_engine_lacks_is_refused_and_nothing_is_left;
    a_limit_that_cannot_be_had_is_said_when_that_is_allowed;
    memory_beyond_the_limit_is_not_given [MEMORY];
    cpu_time_beyond_the_limit_is_not_given [CPU];
    processes_beyond_the_limit_are_not_started [PIDS];
    privileged_has_capabilities_and_strict_has_not [PRIVILEGED];
    a_wrong_request_is_refused_and_nothing_is_left;
}

fn with(s: &Subject, resources: Resources, best_effort_limits: bool) -> CreateSandbox {
    CreateSandbox {
        resources,
        best_effort_limits,
        ..s.spec()
    }
}

/// The code of a refusal.
async fn refused(s: &Subject, spec: &CreateSandbox) -> anyhow::Result<ProblemCode> {
    let world = s.world().await;
    match world.client().create_sandbox(spec).await {
        Err(ClientError::Refused(problem)) => Ok(problem.code),
        Err(other) => Err(other).context("another error"),
        Ok(view) => {
            world.client().delete_sandbox(view.id.as_str()).await?;
            anyhow::bail!("it was made: {spec:?}")
        }
    }
}

async fn what_the_engine_lacks_is_refused_and_nothing_is_left(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let c = &s.capabilities;
    let memory = Resources {
        memory_mib: Some(128),
        ..Resources::default()
    };
    let cpus = Resources {
        cpus: Some(0.5),
        ..Resources::default()
    };
    let pids = Resources {
        pids: Some(64),
        ..Resources::default()
    };
    let mut asked = vec![];
    for (has, resources) in [
        (c.memory_limit, memory),
        (c.cpu_limit, cpus),
        (c.pids_limit, pids),
    ] {
        if !has {
            asked.push(with(&s, resources, false));
        }
    }
    for (has, confinement) in [
        (c.nested, Confinement::Nested),
        (c.privileged, Confinement::Privileged),
    ] {
        if !has {
            asked.push(CreateSandbox {
                confinement,
                ..s.spec()
            });
        }
    }
    asked.push(CreateSandbox {
        runtime: Some("no-such-runtime".into()),
        ..s.spec()
    });
    for mut spec in asked {
        let name = format!("refused-{}", handler_base::random::hex(4));
        spec.name = Some(name.clone());
        let code = refused(&s, &spec).await?;
        ensure!(
            matches!(
                code,
                ProblemCode::Unenforceable | ProblemCode::HostNotReady | ProblemCode::Invalid
            ),
            "{code:?}: {spec:?}"
        );
        let world = s.world().await;
        ensure!(
            world.client().sandbox(&name).await.is_err(),
            "it is there: {spec:?}"
        );
    }
    Ok(())
}

async fn a_limit_that_cannot_be_had_is_said_when_that_is_allowed(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let resources = Resources {
        memory_mib: Some(256),
        cpus: Some(1.0),
        pids: Some(200),
    };
    let sandbox = s.up(&world, &with(&s, resources, true)).await?;
    let view = s.view(&sandbox).await?;
    let c = &s.capabilities;
    let has_all = c.memory_limit && c.cpu_limit && c.pids_limit;
    ensure!(view.warnings.is_empty() == has_all, "{:?}", view.warnings);
    s.down(sandbox).await
}

async fn memory_beyond_the_limit_is_not_given(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let resources = Resources {
        memory_mib: Some(64),
        ..Resources::default()
    };
    let sandbox = s.up(&world, &with(&s, resources, false)).await?;
    // A line of 200 MB is held in memory by `tail`.
    let done = sandbox
        .sh("head -c 209715200 /dev/zero | tail -n 1 >/dev/null; exit $?")
        .await;
    let is_killed = match &done {
        Ok(done) => done.exit.code != 0,
        // The whole sandbox may be ended with it.
        Err(_) => true,
    };
    ensure!(is_killed, "{done:?}");
    s.down(sandbox).await
}

async fn cpu_time_beyond_the_limit_is_not_given(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let resources = Resources {
        cpus: Some(0.2),
        ..Resources::default()
    };
    let sandbox = s.up(&world, &with(&s, resources, false)).await?;
    let script = "timeout 3 sh -c 'while :; do :; done'; while read -r a b rest; do [ $a = cpu ] && :; done </proc/stat; times";
    let done = sandbox.sh(script).await?;
    // `times` prints the children's time last: minutes and seconds of user time.
    let line = done.stdout.lines().last().unwrap_or_default().to_owned();
    let user = line.split_whitespace().next().unwrap_or_default();
    let (minutes, seconds) = user
        .trim_end_matches('s')
        .split_once('m')
        .context(line.clone())?;
    let seconds = minutes.parse::<f64>()? * 60.0 + seconds.parse::<f64>()?;
    ensure!(seconds < 1.8, "3 s at a fifth of a CPU used {seconds} s");
    s.down(sandbox).await
}

async fn processes_beyond_the_limit_are_not_started(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let resources = Resources {
        pids: Some(32),
        ..Resources::default()
    };
    let sandbox = s.up(&world, &with(&s, resources, false)).await?;
    let done = sandbox
        .sh("i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; ls /proc | grep -c '^[0-9]'; kill $(jobs -p) 2>/dev/null; true")
        .await;
    if let Ok(done) = done {
        let count: u32 = done
            .stdout
            .trim()
            .lines()
            .last()
            .unwrap_or("0")
            .parse()
            .unwrap_or(0);
        ensure!(count <= 40, "{count} processes: {done:?}");
    }
    s.down(sandbox).await
}

async fn privileged_has_capabilities_and_strict_has_not(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        confinement: Confinement::Privileged,
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    let bounding = sandbox.out(&crate::probe::status("CapBnd")).await?;
    ensure!(
        !bounding.trim_start_matches('0').is_empty(),
        "CapBnd is {bounding}"
    );
    let view = s.view(&sandbox).await?;
    ensure!(view.confinement == Confinement::Privileged);
    s.down(sandbox).await
}

async fn a_wrong_request_is_refused_and_nothing_is_left(s: Arc<Subject>) -> anyhow::Result<()> {
    let before = s
        .world()
        .await
        .client()
        .sandboxes("", 500)
        .await?
        .items
        .len();
    let specs = [
        CreateSandbox {
            scope: Some("/no/such/folder".into()),
            ..s.spec()
        },
        CreateSandbox {
            scope: Some("relative".into()),
            ..s.spec()
        },
        CreateSandbox {
            name: Some("Not A Name".into()),
            ..s.spec()
        },
        CreateSandbox {
            image: Some("localhost/no-such-image:9".into()),
            ..s.spec()
        },
        CreateSandbox {
            image: Some("NOT an image".into()),
            ..s.spec()
        },
    ];
    for spec in specs {
        let code = refused(&s, &spec).await?;
        ensure!(code != ProblemCode::Internal, "{spec:?}");
    }
    let after = s
        .world()
        .await
        .client()
        .sandboxes("", 500)
        .await?
        .items
        .len();
    // Others make sandboxes meanwhile; none of ours may be among them.
    ensure!(after < before + 20);
    Ok(())
}
