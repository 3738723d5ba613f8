//! Agents' images for real: built on the toolbox from a base without registry, checked, switched, worked in;
//! nothing of the machine in them, and what fails or is cancelled leaves the old ones.

mod base;

use crate::harness::shared::unreachable_registry;
use crate::sessions::Stage;
use base::{BASE, Store};
use handler_testkit::inside::Sandbox;
use handler_testkit::{World, eventually, skip};
use handler_types::build::{BuildKind, BuildRequest, BuildState, BuildView};
use handler_types::sandbox::{Confinement, CreateSandbox};
use std::path::Path;
use std::time::Duration;

/// How long one step may take on a busy machine.
const LONG: Duration = Duration::from_secs(900);
const TOOLBOX: &str = "localhost/handler/toolbox:latest";
const PI: &str = "localhost/handler/pi:latest";
/// Stands in what builds are lent, and must be nowhere afterwards.
const MARK: &str = "handler-world-mark.invalid";

#[tokio::test]
async fn an_image_of_an_agent_is_built_checked_switched_and_worked_in() -> anyhow::Result<()> {
    let test = "harness images";
    let why = match base::absent() {
        None => unreachable_registry("pi").await,
        why => why,
    };
    if let Some(why) = why {
        skip(test, &why);
        return Ok(());
    }
    let store = Store::new()?;
    let (name, value) = store.variable();
    let world = World::builder().env(name, value).start().await?;
    if let Err(why) = base::provide(&world).await? {
        skip(test, &why);
        return Ok(());
    }
    settings(&world)?;
    let stage = Stage::with(world).await?;
    // Nobody is root in a container, and what is root's there cannot be changed.
    std::os::unix::fs::chown(&stage.project, Some(1000), Some(1000))?;

    is_built_and_checked(&stage.world).await?;
    holds_nothing_of_the_machine(&store).await?;
    runs_containers_inside(&stage.world).await?;
    let old = [
        id(&stage.world, TOOLBOX).await?,
        id(&stage.world, PI).await?,
    ];
    a_turn_is_worked_in_it(&stage).await?;
    what_fails_leaves_the_old(&stage.world, &old).await?;
    what_is_cancelled_leaves_the_old(&stage.world, &old).await?;
    all_switch_together(&stage.world, &old).await?;
    starts_mcp_servers_without_its_keys(&stage.world).await?;
    stage.world.assert_clean(LONG).await
}

/// What this machine's builds need, with marks that can be looked for.
fn settings(world: &World) -> anyhow::Result<()> {
    let config = world.scratch().folder("config");
    let mut text = format!(
        "backend = \"podman\"\nbaseImage = \"{BASE}\"\nversions = \"tested\"\n[proxy]\nno = \"{}\"\n",
        no_proxy()
    );
    let of_the_system = "/etc/ssl/certs/ca-certificates.crt".into();
    let bundle = std::env::var_os("SSL_CERT_FILE").unwrap_or(of_the_system);
    if let Ok(known) = std::fs::read_to_string(bundle) {
        let path = config.join("bundle.pem");
        // Words between certificates are comments.
        std::fs::write(&path, format!("{known}\n{MARK}\n"))?;
        text = format!("caBundle = \"{}\"\n{text}", path.display());
    }
    Ok(std::fs::write(config.join("images.toml"), text)?)
}

fn no_proxy() -> String {
    let own = ["no_proxy", "NO_PROXY"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    own.map_or(MARK.to_owned(), |own| format!("{own},{MARK}"))
}

/// One command builds both; the log stays.
async fn is_built_and_checked(world: &World) -> anyhow::Result<()> {
    let made = rebuild(world, "pi").await?;
    let log = log(world, &made).await?;
    assert_eq!(made.state, BuildState::Succeeded, "{:?}\n{log}", made.error);
    assert_eq!(made.image.as_deref(), Some(id(world, PI).await?.as_str()));
    assert!(made.versions.concat().starts_with("pi "), "{made:?}");
    for line in [
        "there is no toolbox yet: it is built first",
        "check: npm --version: 10",
        "check: it answers initialize",
        "check: it opens a session",
        "check: it offers every mode and option it is said to have",
        "localhost/handler/pi:latest is the new image",
    ] {
        assert!(log.contains(line), "no `{line}` in {log}");
    }
    assert!(!log.contains('\u{1b}'), "no escape sequences");
    Ok(())
}

/// Neither proxies nor certificates nor names: not in files, not in the configuration, not in the history.
async fn holds_nothing_of_the_machine(store: &Store) -> anyhow::Result<()> {
    let root = store.podman(&["image", "mount", PI]).await?;
    let root = Path::new(root.trim());
    let mut grep = tokio::process::Command::new("grep");
    grep.args([
        "--recursive",
        "--files-with-matches",
        "--fixed-strings",
        "-e",
        MARK,
    ]);
    let found = grep.arg(root).output().await?;
    assert_eq!(
        String::from_utf8_lossy(&found.stdout),
        "",
        "the mark is in files"
    );
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = std::fs::read_to_string(root.join("etc/hostname")).unwrap_or_default();
    assert_ne!(name.trim(), own.trim(), "the host's name");
    let folder = |name: &str| std::fs::read_dir(root.join(name)).map_or(0, Iterator::count);
    assert_eq!(
        (folder("tmp"), folder("root/.npm")),
        (0, 0),
        "rests of the build"
    );
    store.podman(&["image", "unmount", PI]).await?;

    let config = store.podman(&["image", "inspect", PI]).await?;
    let history = store.podman(&["history", "--no-trunc", PI]).await?;
    for text in [&config, &history] {
        assert!(!text.contains(MARK), "{text}");
        assert!(!text.to_lowercase().contains("_proxy="), "{text}");
    }
    assert!(
        !config.contains("\"SSL_CERT_FILE=") && !config.contains("\"NODE_EXTRA"),
        "{config}"
    );
    Ok(())
}

/// `nested`: the toolbox's own Podman makes an image of the sandbox's shell and runs it.
async fn runs_containers_inside(world: &World) -> anyhow::Result<()> {
    let spec = CreateSandbox {
        backend: Some("podman".to_owned()),
        image: Some(TOOLBOX.to_owned()),
        confinement: Confinement::Nested,
        ..CreateSandbox::default()
    };
    let sandbox = Sandbox::up(world, &spec).await?;
    let script =
        "mkdir -p r/bin r/tmp; cp --parents $(ldd /bin/sh | grep -o '/[^ )]*') r; cp /bin/sh r/bin/
        tar -C r -cf r.tar . && podman import --quiet r.tar localhost/inner:1 >&2 &&
        podman run --rm --network none localhost/inner:1 /bin/sh -c 'echo inside $((40 + 2))'";
    let said = sandbox.out(script).await?;
    assert_eq!(said, "inside 42");
    world.cli_ok(&["sandbox", "down", &sandbox.id]).await?;
    Ok(())
}

/// `handler run --backend podman`: the agent of the image, through the filter, to the model and the folder.
async fn a_turn_is_worked_in_it(stage: &Stage) -> anyhow::Result<()> {
    let file = stage.project.join("made.txt");
    let task = format!(
        "Do it. PLAN:write:{}|in an image THEN PLAN:slow:3",
        file.display()
    );
    let mut command = tokio::process::Command::from(stage.world.command());
    command
        .args(["run", "--backend", "podman", &task])
        .current_dir(&stage.project)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let run = tokio::time::timeout(LONG, command.output()).await??;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, notes) = (said(&run.stdout), said(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{shown}{notes}");
    assert!(shown.contains("word1 word2"), "{shown}{notes}");
    assert_eq!(stage.read("made.txt")?.trim_end(), "in an image");
    // The model takes the right key only; what the agent sent was a stand-in, changed on its way.
    assert!(!stage.asked("Do it.").is_empty(), "the model was asked");

    let all = stage.client().sessions("", "", 10).await?;
    let session = all.items.first().expect("the session");
    let version = session.harness_version.clone().unwrap_or_default();
    assert!(
        version.starts_with("pi ") && version.contains("pi-acp"),
        "{session:?}"
    );
    stage.client().stop_session(session.id.as_str()).await?;
    stage.world.assert_clean(LONG).await
}

/// A recipe that does not build, and one whose image lacks what agents need.
async fn what_fails_leaves_the_old(world: &World, old: &[String; 2]) -> anyhow::Result<()> {
    recipe(world, "RUN echo this goes wrong && false")?;
    let failed = rebuild(world, "toolbox").await?;
    assert_eq!(failed.state, BuildState::Failed);
    assert!(log(world, &failed).await?.contains("this goes wrong"));
    recipe(world, "RUN rm /usr/local/bin/npm")?;
    let failed = rebuild(world, "toolbox").await?;
    let error = failed.error.unwrap_or_default();
    assert!(error.contains("check") && error.contains("npm"), "{error}");
    unchanged(world, old).await
}

async fn what_is_cancelled_leaves_the_old(world: &World, old: &[String; 2]) -> anyhow::Result<()> {
    recipe(world, "RUN echo it has begun && sleep 1000")?;
    let build = begin(world, "toolbox").await?;
    eventually("the step", LONG, || async {
        let log = log(world, &build).await.ok()?;
        log.lines().any(|line| line == "it has begun").then_some(())
    })
    .await?;
    world
        .cli_ok(&["build", "cancel", build.id.as_str()])
        .await?;
    assert_eq!(over(world, &build).await?.state, BuildState::Cancelled);
    unchanged(world, old).await
}

/// A toolbox that is changed by its owner takes the agents' images along.
async fn all_switch_together(world: &World, old: &[String; 2]) -> anyhow::Result<()> {
    recipe(world, "RUN touch /usr/share/handler/changed")?;
    let made = rebuild(world, "toolbox").await?;
    let log = log(world, &made).await?;
    assert_eq!(
        (made.state, made.kind),
        (BuildState::Succeeded, BuildKind::Toolbox),
        "{log}"
    );
    assert!(log.contains("check: passed: pi "), "{log}");
    assert_ne!(id(world, TOOLBOX).await?, old[0]);
    assert_ne!(id(world, PI).await?, old[1]);
    let gone = world.client().image(&old[1], Some("podman")).await;
    assert!(gone.is_err(), "what was replaced and is not used goes");
    let listed = world.cli_ok(&["build", "list"]).await?;
    assert!(
        listed.contains("cancelled") && listed.contains("failed"),
        "{listed}"
    );
    Ok(())
}

/// Another agent on the same toolbox, one that starts MCP servers itself.
async fn starts_mcp_servers_without_its_keys(world: &World) -> anyhow::Result<()> {
    let made = rebuild(world, "claude-code").await?;
    let log = log(world, &made).await?;
    assert_eq!(made.state, BuildState::Succeeded, "{:?}\n{log}", made.error);
    let probe =
        "check: it starts the MCP server with the sandbox's environment and without the key";
    assert!(log.contains(probe), "{log}");
    Ok(())
}

/// The owner's own recipe: the toolbox there is, and one step more.
fn recipe(world: &World, step: &str) -> anyhow::Result<()> {
    let path = world
        .scratch()
        .folder("config")
        .join("toolbox/Containerfile");
    Ok(std::fs::write(path, format!("FROM {TOOLBOX}\n{step}\n"))?)
}

async fn unchanged(world: &World, old: &[String; 2]) -> anyhow::Result<()> {
    assert_eq!([id(world, TOOLBOX).await?, id(world, PI).await?], *old);
    let all = world.client().images_of("podman").await?;
    let unnamed = all.iter().filter(|image| image.names.is_empty()).count();
    assert_eq!(
        unnamed, 0,
        "what did not come to an end leaves no image: {all:?}"
    );
    Ok(())
}

async fn rebuild(world: &World, target: &str) -> anyhow::Result<BuildView> {
    let build = begin(world, target).await?;
    over(world, &build).await
}

async fn begin(world: &World, target: &str) -> anyhow::Result<BuildView> {
    let request = BuildRequest {
        target: target.to_owned(),
        backend: Some("podman".to_owned()),
    };
    Ok(world.client().build_target(&request).await?)
}

async fn over(world: &World, build: &BuildView) -> anyhow::Result<BuildView> {
    eventually("the build's end", LONG, || async {
        let build = world.client().build(build.id.as_str()).await.ok()?;
        build.state.is_over().then_some(build)
    })
    .await
}

async fn log(world: &World, build: &BuildView) -> anyhow::Result<String> {
    world.cli_ok(&["build", "log", build.id.as_str()]).await
}

async fn id(world: &World, name: &str) -> anyhow::Result<String> {
    Ok(world.client().image(name, Some("podman")).await?.id)
}
