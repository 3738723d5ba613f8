//! The daemon's life: take the lock, find what an earlier daemon left running, serve, leave it running.

use crate::app::audit::Audit;
use crate::app::limits::LimitsFile;
use crate::app::observe::log::redact::Redaction;
use crate::app::observe::{self, Observe};
use crate::app::secrets::Resolver;
use crate::app::{builds, images, launches, logins};
use crate::app::{harnesses, harnesses::Harnesses, sessions};
use crate::config::Settings;
use crate::events::EventHub;
use crate::http;
use crate::start;
use crate::state::App;
use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use handler_base::tasks::spawn_named;
use handler_drivers::native::{NativeConfig, NativeDriver, StoreConfig};
use handler_drivers::oci::{Flavour, OciConfig, OciDriver, OciSource};
use handler_engine::StoreRows;
use handler_engine::egress::{EgressLink, EgressLinkConfig};
use handler_engine::{Engine, EngineConfig, EngineTiming, SandboxChange};
use handler_store::accounts::AccountFiles;
use handler_store::contexts::ContextsFile;
use handler_store::db::Store;
use handler_store::folders::WorkFolders;
use handler_store::knowledge::Knowledge;
use handler_store::logins::LoginStore;
use handler_store::providers::ProviderFiles;
use handler_store::secrets::SecretStore;
use handler_types::event::ServerEvent;
use std::ffi::OsString;
use std::future::IntoFuture as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What the program gives its daemon.
#[derive(Debug)]
pub struct Programs {
    /// This program, for starting the egress filter.
    pub program: PathBuf,
    /// The guest program, when it was embedded.
    pub guest: Option<&'static [u8]>,
}

/// Is the daemon until SIGTERM or SIGINT.
///
/// # Errors
/// Whatever stood in the way of starting; the text says what to do.
pub async fn serve(mut settings: Settings, programs: Programs) -> anyhow::Result<()> {
    start::leave_no_core();
    settings.layout.prepare()?;
    settings.layout = start::real_folders(settings.layout)?;
    let _lock = start::lock(&settings.layout)?;
    let tcp = start::listen_tcp(settings.port).await?;
    let unix = start::listen_unix(&settings.layout)?;
    let shutdown = CancellationToken::new();
    stop_on_signals(shutdown.clone())?;
    let app = compose(settings, programs, &tcp, shutdown).await?;
    publish_port(&app)?;
    tracing::info!(port = app.port(), "ready");
    serve_both(app.clone(), tcp, unix).await?;
    app.connections.leave().await;
    crate::app::terminals::leave(&app).await;
    sessions::leave(&app).await;
    app.engine.shutdown().await;
    for api in &app.container_apis {
        api.shutdown().await;
    }
    std::fs::remove_file(app.settings.layout.daemon_socket()).ok();
    app.store.clone().close().await;
    tracing::info!("stopped; sandboxes and sessions go on");
    Ok(())
}

async fn compose(
    settings: Settings,
    programs: Programs,
    tcp: &TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<Arc<App>> {
    let layout = settings.layout.clone();
    let guest_program =
        start::guest_program(&layout, settings.guest_program.as_deref(), programs.guest)?;
    let secret_token = start::token(&layout)?;
    let store = Store::open(&layout.db())?;
    let secrets = SecretStore::new(layout.secrets_file(), layout.secrets_key());
    let login_store = LoginStore::new(layout.logins_file(), layout.secrets_key());
    let redaction = || Redaction::new(&layout, secrets.clone(), login_store.clone());
    let program = programs.program;
    let egress = Arc::new(start_egress(&layout, program.clone()).await?);
    let engines = container_engines(&settings, &guest_program);
    let apis = engines.each_ref().map(|engine| engine.api().clone());
    let [podman, docker] = engines.map(Arc::new);
    let mut native = NativeConfig::new(guest_program, layout.state.clone());
    native.extra_ca_file = settings.extra_ca_file.clone();
    native.images = Some(image_store(&settings));
    let engine = Engine::start(EngineConfig {
        state_dir: layout.state.clone(),
        runtime_dir: layout.runtime.clone(),
        owner: start::owner(&layout),
        drivers: vec![Arc::new(NativeDriver::new(native)), podman, docker],
        egress: egress.clone(),
        rows: Arc::new(StoreRows::new(store.clone())),
        resolver: Arc::new(Resolver {
            secrets: secrets.clone(),
            logins: login_store.clone(),
        }),
        timing: EngineTiming::default(),
        limits: Arc::new(LimitsFile::open(layout.limits_file(), settings.limits)?),
        probe: None,
    })
    .await
    .context("cannot take up the sandboxes")?;
    let scrape_token = start::scrape_token(&layout)?;
    let audit = Audit::start(&layout, redaction(), egress.subscribe(0));
    let observe = Observe::new(&layout, redaction(), egress.clone(), scrape_token);
    let app = Arc::new(App {
        accounts: AccountFiles::new(layout.accounts_dir()),
        contexts: ContextsFile::new(layout.contexts_file()),
        providers: ProviderFiles::new(layout.providers_dir()),
        knowledge: Knowledge::new(
            layout.knowledge_file(),
            settings.home.clone(),
            settings.knowledge_root.clone(),
            WorkFolders::of(&layout, settings.home.clone()),
        ),
        folders: WorkFolders::of(&layout, settings.home.clone()),
        settings,
        store,
        secrets,
        logins: logins::Logins::new(login_store),
        engine,
        container_apis: apis,
        sessions: sessions::Sessions::default(),
        connections: crate::app::launches::connection::Connections::default(),
        terminals: crate::app::terminals::Terminals::default(),
        harnesses: Harnesses::default(),
        spools: Arc::new(crate::app::spool::Spools::new(&layout.state)),
        builds: builds::Builds::new(layout.state.join("builds")),
        updates: images::updates::Updates::read(layout.state.join("image-updates.json")),
        events: EventHub::default(),
        egress_events: crate::app::egress_events::EgressEvents::default(),
        learned: crate::app::learn::Learned::default(),
        audit,
        network_turn: tokio::sync::Mutex::default(),
        agents_turn: tokio::sync::Mutex::default(),
        caches_turn: tokio::sync::RwLock::default(),
        observe,
        ports: crate::app::ports::Ports::default(),
        previews: crate::app::previews::Previews::new(&secret_token),
        preview_connections: crate::http::preview::Connections::default(),
        program,
        shutdown,
        secret_token,
        bound_port: AtomicU16::new(tcp.local_addr()?.port()),
    });
    forward_sandbox_events(&app);
    forward_egress_events(&app, &egress);
    logins::follow(&app, &egress).await;
    observe::start(&app);
    if let Err(error) = crate::app::ports::take_up(&app).await {
        tracing::error!(error = error.0.detail, "forwarded ports cannot be taken up");
    }
    sessions::take_up(&app).await;
    crate::app::agents::tidy(&app).await;
    crate::app::caches::tidy(&app).await;
    crate::app::terminals::take_up(&app).await;
    crate::app::launches::take_up(&app).await;
    crate::app::spool::take_up(&app);
    images::toolbox::ensure(&app);
    builds::take_up(&app).await;
    images::updates::keep_time(&app);
    // Now nothing writes into them any more.
    harnesses::remove_interrupted(&layout.harnesses_dir());
    crate::app::git::keep::sweep(&app);
    Ok(app)
}

/// Podman and Docker, present or not: one that is missing says so when it is asked.
fn container_engines(settings: &Settings, guest_program: &std::path::Path) -> [OciDriver; 2] {
    let layout = &settings.layout;
    let podman = match &settings.podman_socket {
        Some(socket) => OciSource::Socket(socket.clone()),
        None => OciSource::Service {
            folder: layout.runtime.join("podman"),
            log: layout.state.join("podman.log"),
        },
    };
    let docker = OciSource::Socket(settings.docker_socket.clone());
    let mut config = OciConfig::new(guest_program.to_owned(), layout.state.clone());
    config.extra_ca_file = settings.extra_ca_file.clone();
    [
        OciDriver::new(Flavour::Podman, podman, config.clone()),
        OciDriver::new(Flavour::Docker, docker, config),
    ]
}

/// Where the native backend keeps images; credentials are those of `podman login` and `docker login`.
fn image_store(settings: &Settings) -> StoreConfig {
    let logins = [
        settings
            .layout
            .runtime
            .with_file_name("containers/auth.json"),
        settings.home.join(".config/containers/auth.json"),
        settings.home.join(".docker/config.json"),
    ];
    StoreConfig {
        folder: settings.layout.data.join("images"),
        extra_ca_file: settings.extra_ca_file.clone(),
        auth_files: logins.into(),
    }
}

async fn start_egress(
    layout: &handler_store::paths::Layout,
    program: PathBuf,
) -> anyhow::Result<EgressLink> {
    let control = layout.egress_control();
    let command: Vec<OsString> = vec![
        program.into(),
        "egress".into(),
        "--control".into(),
        control.clone().into(),
    ];
    let config = EgressLinkConfig::new(control, command, layout.egress_log());
    EgressLink::start(config)
        .await
        .context("cannot start the egress filter")
}

/// Sandbox changes onto the event stream; a sandbox that goes away takes its session's life with it.
fn forward_sandbox_events(app: &Arc<App>) {
    let mut changes = app.engine.subscribe();
    let app = app.clone();
    spawn_named("sandbox events", async move {
        loop {
            match changes.recv().await {
                Ok(SandboxChange::Changed(sandbox)) => {
                    app.events.publish(ServerEvent::Sandbox { sandbox });
                }
                Ok(SandboxChange::Removed(id)) => {
                    app.egress_events.forget(id.as_str());
                    app.learned.forget(id.as_str());
                    crate::app::ports::forget(&app, &id).await;
                    crate::app::terminals::forget(&app, &id);
                    logins::sweep(&app).await;
                    app.events
                        .publish(ServerEvent::SandboxRemoved { id: id.to_string() });
                }
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {
                    app.events.publish(ServerEvent::Missed);
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            }
        }
    });
}

fn forward_egress_events(app: &Arc<App>, egress: &Arc<EgressLink>) {
    let mut decisions = egress.subscribe(0);
    let app = app.clone();
    spawn_named("egress events", async move {
        while let Some(event) = decisions.recv().await {
            // One that is gone has nobody to forget what still comes of it.
            let id = event.sandbox.parse::<handler_types::SandboxId>();
            if let Some(view) = id.ok().and_then(|id| app.engine.get(&id).ok()) {
                let of_session = view.labels.get(sessions::AGENT_LABEL);
                let agent = of_session.or_else(|| view.labels.get(launches::AGENT_LABEL));
                app.egress_events.add(event.clone(), agent);
                app.learned.add(&event);
            }
            app.events.publish(ServerEvent::Egress { event });
        }
    });
}

fn stop_on_signals(shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    spawn_named("signals", async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        shutdown.cancel();
    });
    Ok(())
}

/// The port, for clients that are told none: written when all is ready.
fn publish_port(app: &App) -> anyhow::Result<()> {
    let path = app.settings.layout.runtime.join("port");
    handler_base::fs::write_atomic(&path, app.port().to_string().as_bytes(), 0o600)?;
    Ok(())
}

async fn serve_both(app: Arc<App>, tcp: TcpListener, unix: UnixListener) -> anyhow::Result<()> {
    let router = http::router(app.clone());
    let tcp = tcp.tap_io(|stream| {
        stream.set_nodelay(true).ok();
    });
    let end = app.shutdown.clone();
    // Made ready once: a bare router would be copied whole for every connection.
    let service = router.into_make_service();
    let over_tcp = axum::serve(tcp, service.clone())
        .with_graceful_shutdown(end.clone().cancelled_owned())
        .into_future();
    let over_unix = axum::serve(unix, service)
        .with_graceful_shutdown(end.clone().cancelled_owned())
        .into_future();
    let both = async { tokio::try_join!(over_tcp, over_unix).map(|_| ()) };
    let patience = async {
        end.cancelled().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    tokio::select! {
        served = both => served?,
        // A client that does not let go must not keep the daemon.
        () = patience => {}
    }
    Ok(())
}
