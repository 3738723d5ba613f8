//! One method per route of the API.

use crate::error::ClientError;
use crate::transport::{Client, encode};
use handler_types::account::{AccountLoginRequest, AccountRequest, AccountView};
use handler_types::agent::{AgentPatch, AgentRequest, AgentView};
use handler_types::agent_terminal::{TerminalStart, TerminalStarted};
use handler_types::api::{
    BackendView, ChmodRequest, CreateTerminal, DirListing, ExecRequest, ExecResult, FileWritten,
    FolderRequest, HarnessView, Health, LoginRequest, LoginView, MkdirRequest, MoveRequest,
    NetworkUpdate, Page, ProcessView, ProviderRequest, ProviderTemplate, ProviderView,
    SecretRequest, SecretView, SignalRequest,
};
use handler_types::audit::AuditVerdict;
use handler_types::build::{
    BuildRequest, BuildView, ImageUpdates, ImageUpdatesRequest, PullRequest, TagRequest,
};
use handler_types::cache::{CacheSizes, CachesInfo, CachesRequest};
use handler_types::context::{ContextRequest, ContextView};
use handler_types::egress::{AgentEgressEvent, EgressEvent};
use handler_types::folder::{
    CreateDirectoryRequest, DirectoryListing, WorkFoldersInfo, WorkFoldersRequest,
};
use handler_types::git::{
    CreateFork, ForkKept, ForkView, GitCommit, GitShow, GitStatus, MergeRequest, MergeResult,
};
use handler_types::guest::FileEntry;
use handler_types::guest::TtySize;
use handler_types::image::ImageView;
use handler_types::knowledge::{
    KnowledgeFolderRequest, KnowledgeFolderView, KnowledgeListing, KnowledgeNote,
    SetKnowledgeRootRequest,
};
use handler_types::learn::{EnforcementRequest, EntriesRequest, LearnView};
use handler_types::limits::HostView;
use handler_types::network::NetworkPolicy;
use handler_types::observe::{
    AgentList, HostStats, LogLines, MetricsHistory, SandboxActivity, SandboxMetrics,
};
use handler_types::port::{ForwardRequest, OpenRequest, OpenedPort, PortView, SshHostKey};
use handler_types::preset::{Preset, PresetView, QuickFile, QuickFileView};
use handler_types::project::{CreateProject, ProjectSettings, ProjectView};
use handler_types::sandbox::{CreateSandbox, SandboxView};
use handler_types::session::{CreateSession, SessionView};
use handler_types::terminal::{ScreenView, TerminalView, TmuxSessions, UpdateTerminal};
use handler_types::update::UpdateSandbox;
use http::Method;

const NO_BODY: Option<&()> = None;

/// The result of a call.
pub(crate) type Answer<T> = Result<T, ClientError>;

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $(body $body:ident: $bty:ty)? => $method:ident $path:expr => $out:ty;)*) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`ClientError`].
                pub async fn $name(&self, $($arg: $ty,)* $($body: &$bty)?) -> Answer<$out> {
                    $(let $arg = encode(&$arg.to_string());)*
                    let body = calls!(@body $($body)?);
                    self.call(Method::$method, &format!($path), body).await
                }
            )*
        }
    };
    (@body) => { NO_BODY };
    (@body $body:ident) => { Some($body) };
}

calls! {
    /// Whether the daemon is there.
    health() => GET "/v1/health" => Health;
    /// Backends of the host and what was checked.
    backends() => GET "/v1/backends" => Vec<BackendView>;

    /// What the host hands out, and what of it is taken.
    host() => GET "/v1/host" => HostView;

    /// A page of sandboxes, newest first.
    sandboxes(cursor: &str, limit: u32) => GET "/v1/sandboxes?cursor={cursor}&limit={limit}" => Page<SandboxView>;
    /// Makes a sandbox and waits until it runs.
    create_sandbox() body spec: CreateSandbox => POST "/v1/sandboxes" => SandboxView;
    /// One sandbox, by id, unique prefix or name.
    sandbox(id: &str) => GET "/v1/sandboxes/{id}" => SandboxView;
    /// Removes a sandbox.
    delete_sandbox(id: &str) => DELETE "/v1/sandboxes/{id}" => ();
    /// Starts a stopped sandbox.
    start_sandbox(id: &str) => POST "/v1/sandboxes/{id}/start" => SandboxView;
    /// Stops a sandbox; its home is kept.
    stop_sandbox(id: &str) => POST "/v1/sandboxes/{id}/stop" => SandboxView;
    /// Stops and starts a sandbox.
    restart_sandbox(id: &str) => POST "/v1/sandboxes/{id}/restart" => SandboxView;
    /// Freezes a running sandbox.
    pause_sandbox(id: &str) => POST "/v1/sandboxes/{id}/pause" => SandboxView;
    /// Thaws a paused sandbox.
    resume_sandbox(id: &str) => POST "/v1/sandboxes/{id}/resume" => SandboxView;
    /// Changes name, labels, metadata, time to live, idle policy or limits.
    update_sandbox(id: &str) body update: UpdateSandbox => PATCH "/v1/sandboxes/{id}" => SandboxView;
    /// Changes what a sandbox may reach, live.
    set_network(id: &str) body update: NetworkUpdate => PUT "/v1/sandboxes/{id}/network" => SandboxView;
    /// What the filter decided for a sandbox (the last ones).
    sandbox_egress(id: &str) => GET "/v1/sandboxes/{id}/egress-events" => Vec<EgressEvent>;
    /// What a sandbox asked for, and what would allow it.
    network_learn(id: &str) => GET "/v1/sandboxes/{id}/network/learn" => LearnView;
    /// Puts entries on a sandbox's list.
    network_allow(id: &str) body request: EntriesRequest => POST "/v1/sandboxes/{id}/network/allow" => SandboxView;
    /// Takes entries off a sandbox's list.
    network_block(id: &str) body request: EntriesRequest => POST "/v1/sandboxes/{id}/network/block" => SandboxView;
    /// Refuses what a sandbox's list has not, or only tells.
    network_enforcement(id: &str) body request: EnforcementRequest => PUT "/v1/sandboxes/{id}/network/enforcement" => SandboxView;
    /// As `network_learn`, of a session.
    session_learn(id: &str) => GET "/v1/sessions/{id}/network/learn" => LearnView;
    /// As `network_allow`, of a session: for later starts too.
    session_allow(id: &str) body request: EntriesRequest => POST "/v1/sessions/{id}/network/allow" => SessionView;
    /// As `network_block`, of a session: for later starts too.
    session_block(id: &str) body request: EntriesRequest => POST "/v1/sessions/{id}/network/block" => SessionView;
    /// As `network_enforcement`, of a session: for later starts too.
    session_enforcement(id: &str) body request: EnforcementRequest => PUT "/v1/sessions/{id}/network/enforcement" => SessionView;
    /// Whether the audit log holds together.
    audit_verify() => GET "/v1/audit/verify" => AuditVerdict;
    /// What a sandbox uses.
    metrics(id: &str) => GET "/v1/sandboxes/{id}/metrics" => SandboxMetrics;
    /// What it used over the last half hour, at most the last `limit` samples.
    metrics_history(id: &str, limit: u32) => GET "/v1/sandboxes/{id}/metrics/history?limit={limit}" => MetricsHistory;
    /// Which agent programs a sandbox has and runs.
    agents(id: &str) => GET "/v1/sandboxes/{id}/agents" => AgentList;
    /// What a sandbox's terminals and sessions do.
    activity(id: &str) => GET "/v1/sandboxes/{id}/activity" => SandboxActivity;
    /// The last lines of a sandbox's log.
    logs(id: &str, tail: usize) => GET "/v1/sandboxes/{id}/logs?tail={tail}" => LogLines;
    /// What the daemon's machine has and uses.
    host_stats() => GET "/v1/host/stats" => HostStats;

    /// Ports of a sandbox, open or forwarded.
    ports(id: &str) => GET "/v1/sandboxes/{id}/ports" => Vec<PortView>;
    /// Forwards a port to the host.
    forward_port(id: &str) body request: ForwardRequest => POST "/v1/sandboxes/{id}/ports" => PortView;
    /// Takes a forward away.
    unforward_port(id: &str, port: u16) => DELETE "/v1/sandboxes/{id}/ports/{port}" => ();
    /// A way in to a preview for one browser.
    open_port(id: &str, port: u16) body request: OpenRequest => POST "/v1/sandboxes/{id}/ports/{port}/open" => OpenedPort;
    /// How an SSH client knows a sandbox.
    ssh_host_key(id: &str) => GET "/v1/sandboxes/{id}/ssh/host-key" => SshHostKey;

    /// Runs a command and waits for its end.
    exec(id: &str) body request: ExecRequest => POST "/v1/sandboxes/{id}/exec" => ExecResult;
    /// Starts a process that is kept.
    start_process(id: &str) body request: ExecRequest => POST "/v1/sandboxes/{id}/processes" => ProcessView;
    /// Processes of a sandbox.
    processes(id: &str) => GET "/v1/sandboxes/{id}/processes" => Vec<ProcessView>;
    /// One process.
    process(id: &str, process: u32) => GET "/v1/sandboxes/{id}/processes/{process}" => ProcessView;
    /// Sends a signal.
    signal(id: &str, process: u32) body request: SignalRequest => POST "/v1/sandboxes/{id}/processes/{process}/signal" => ();
    /// Opens a terminal.
    create_terminal(id: &str) body request: CreateTerminal => POST "/v1/sandboxes/{id}/terminals" => TerminalView;
    /// Terminals of a sandbox.
    terminals(id: &str) => GET "/v1/sandboxes/{id}/terminals" => Vec<TerminalView>;
    /// One terminal.
    terminal(id: &str, terminal: u32) => GET "/v1/sandboxes/{id}/terminals/{terminal}" => TerminalView;
    /// Renames a terminal.
    update_terminal(id: &str, terminal: u32) body update: UpdateTerminal => PATCH "/v1/sandboxes/{id}/terminals/{terminal}" => TerminalView;
    /// Closes a terminal; its program is killed.
    close_terminal(id: &str, terminal: u32) => DELETE "/v1/sandboxes/{id}/terminals/{terminal}" => ();
    /// What is on a terminal.
    terminal_screen(id: &str, terminal: u32, scrollback: u32) => GET "/v1/sandboxes/{id}/terminals/{terminal}/screen?format=json&scrollback={scrollback}" => ScreenView;
    /// Sets a terminal's size.
    resize_terminal(id: &str, terminal: u32) body size: TtySize => POST "/v1/sandboxes/{id}/terminals/{terminal}/resize" => ();
    /// tmux sessions inside a sandbox.
    tmux_sessions(id: &str) => GET "/v1/sandboxes/{id}/tmux" => TmuxSessions;

    /// Lists a folder.
    list_dir(id: &str, path: &str, depth: u32) => GET "/v1/sandboxes/{id}/dir?path={path}&depth={depth}" => DirListing;
    /// Describes a path; links are not followed.
    stat_path(id: &str, path: &str) => GET "/v1/sandboxes/{id}/files/stat?path={path}" => FileEntry;
    /// Size and SHA-256 of a file.
    hash_path(id: &str, path: &str) => GET "/v1/sandboxes/{id}/files/hash?path={path}" => FileWritten;
    /// Sets permission bits.
    chmod_path(id: &str) body request: ChmodRequest => POST "/v1/sandboxes/{id}/files/chmod" => ();
    /// Makes a folder.
    mkdir(id: &str) body request: MkdirRequest => POST "/v1/sandboxes/{id}/files/mkdir" => ();
    /// Renames a path.
    move_path(id: &str) body request: MoveRequest => POST "/v1/sandboxes/{id}/files/move" => ();
    /// Removes a path.
    remove_path(id: &str, path: &str, recursive: bool) => DELETE "/v1/sandboxes/{id}/files?path={path}&recursive={recursive}" => ();

    /// Environment presets.
    presets() => GET "/v1/presets" => Vec<PresetView>;
    /// One preset.
    preset(name: &str) => GET "/v1/presets/{name}" => Preset;
    /// Makes or replaces a preset.
    put_preset(name: &str) body preset: Preset => PUT "/v1/presets/{name}" => PresetView;
    /// Removes a preset.
    delete_preset(name: &str) => DELETE "/v1/presets/{name}" => ();
    /// Quick files.
    quick_files() => GET "/v1/quick-files" => Vec<QuickFileView>;
    /// One quick file.
    quick_file(name: &str) => GET "/v1/quick-files/{name}" => QuickFile;
    /// Makes or replaces a quick file.
    put_quick_file(name: &str) body file: QuickFile => PUT "/v1/quick-files/{name}" => QuickFileView;
    /// Removes a quick file.
    delete_quick_file(name: &str) => DELETE "/v1/quick-files/{name}" => ();
    /// Puts a quick file into a running sandbox.
    copy_quick_file(name: &str, sandbox: &str) => POST "/v1/quick-files/{name}/copy/{sandbox}" => ();

    /// Branch and changed paths of the repository in a sandbox; an empty path is the working folder.
    git_status(id: &str, path: &str) => GET "/v1/sandboxes/{id}/git?path={path}" => GitStatus;
    /// Commits, newest first.
    git_log(id: &str, path: &str, from: &str, limit: u32) => GET "/v1/sandboxes/{id}/git/log?path={path}&ref={from}&limit={limit}" => Vec<GitCommit>;
    /// A commit with its message and patch.
    git_show(id: &str, commit: &str, path: &str) => GET "/v1/sandboxes/{id}/git/commits/{commit}?path={path}" => GitShow;
    /// Makes a fork and its sandbox.
    create_fork() body request: CreateFork => POST "/v1/forks" => SandboxView;
    /// Forks and how they stand.
    forks() => GET "/v1/forks" => Page<ForkView>;
    /// How one fork stands.
    fork(sandbox: &str) => GET "/v1/forks/{sandbox}" => ForkView;
    /// Removes a fork; what its project lacks is kept there, hidden.
    delete_fork(sandbox: &str, force: bool) => DELETE "/v1/forks/{sandbox}?force={force}" => ForkKept;
    /// Takes a fork's work back.
    merge_fork(sandbox: &str) body request: MergeRequest => POST "/v1/forks/{sandbox}/merge" => MergeResult;

    /// Projects, last used first; with a folder only the one it is in.
    projects(folder: &str) => GET "/v1/projects?folder={folder}" => Vec<ProjectView>;
    /// Makes a project.
    create_project() body request: CreateProject => POST "/v1/projects" => ProjectView;
    /// One project, by id, the beginning of one, or its name.
    project(id: &str) => GET "/v1/projects/{id}" => ProjectView;
    /// Says something else of a project, whole.
    put_project(id: &str) body settings: ProjectSettings => PUT "/v1/projects/{id}" => ProjectView;
    /// Removes a project and its agents.
    delete_project(id: &str) => DELETE "/v1/projects/{id}" => ();
    /// Agents; with a project only its own.
    agents_of(project: &str) => GET "/v1/agents?project={project}" => Vec<AgentView>;
    /// Makes an agent.
    create_agent() body request: AgentRequest => POST "/v1/agents" => AgentView;
    /// One agent: by id, the beginning of one, its name, or `PROJECT/NAME`.
    agent(id: &str) => GET "/v1/agents/{id}" => AgentView;
    /// Sets an agent up anew, whole.
    put_agent(id: &str) body request: AgentRequest => PUT "/v1/agents/{id}" => AgentView;
    /// Starts its program's own terminal.
    start_agent_terminal(id: &str) body request: TerminalStart => POST "/v1/agents/{id}/terminal" => TerminalStarted;
    /// Says whether what is not on an agent's list is refused or only told.
    patch_agent(id: &str) body request: AgentPatch => PATCH "/v1/agents/{id}" => AgentView;
    /// What the filter decided for an agent's sandboxes (the last ones).
    agent_egress(id: &str) => GET "/v1/agents/{id}/egress-events" => Vec<AgentEgressEvent>;
    /// Removes an agent; its running sessions are stopped.
    delete_agent(id: &str) => DELETE "/v1/agents/{id}" => ();
    /// Puts entries on an agent's list.
    agent_allow(id: &str) body request: EntriesRequest => POST "/v1/agents/{id}/network/allow" => AgentView;
    /// Takes entries off an agent's list.
    agent_block(id: &str) body request: EntriesRequest => POST "/v1/agents/{id}/network/block" => AgentView;
    /// Refuses what an agent's list has not, or only tells.
    agent_enforcement(id: &str) body request: EnforcementRequest => PUT "/v1/agents/{id}/network/enforcement" => AgentView;

    /// A page of sessions, last active first.
    sessions(scope: &str, cursor: &str, limit: u32) => GET "/v1/sessions?scope={scope}&cursor={cursor}&limit={limit}" => Page<SessionView>;
    /// Makes a session and starts it.
    create_session() body request: CreateSession => POST "/v1/sessions" => SessionView;
    /// One session, by id or unique prefix.
    session(id: &str) => GET "/v1/sessions/{id}" => SessionView;
    /// Stops a session; it can be attached again.
    stop_session(id: &str) => POST "/v1/sessions/{id}/stop" => SessionView;
    /// Cancels the turn under way.
    cancel_session(id: &str) => POST "/v1/sessions/{id}/cancel" => SessionView;
    /// Removes a session with its log.
    delete_session(id: &str) => DELETE "/v1/sessions/{id}" => ();

    /// Accounts.
    accounts() => GET "/v1/accounts" => Vec<AccountView>;
    /// Makes an account.
    create_account() body request: AccountRequest => POST "/v1/accounts" => AccountView;
    /// Says something else of an account, whole; its login stays.
    put_account(name: &str) body request: AccountRequest => PUT "/v1/accounts/{name}" => AccountView;
    /// Removes an account with its login.
    delete_account(name: &str) => DELETE "/v1/accounts/{name}" => ();
    /// Gives an account its login.
    log_in(name: &str) body request: AccountLoginRequest => PUT "/v1/accounts/{name}/login" => AccountView;
    /// Takes an account's login away.
    log_out(name: &str) => DELETE "/v1/accounts/{name}/login" => AccountView;
    /// Contexts.
    contexts() => GET "/v1/contexts" => Vec<ContextView>;
    /// Makes a context.
    create_context() body request: ContextRequest => POST "/v1/contexts" => ContextView;
    /// Gives a context another colour.
    put_context(name: &str) body request: ContextRequest => PUT "/v1/contexts/{name}" => ContextView;
    /// Removes a context.
    delete_context(name: &str) => DELETE "/v1/contexts/{name}" => ();

    /// Providers.
    providers() => GET "/v1/providers" => Vec<ProviderView>;
    /// Templates for providers.
    provider_templates() => GET "/v1/provider-templates" => Vec<ProviderTemplate>;
    /// Adds a provider.
    add_provider() body request: ProviderRequest => POST "/v1/providers" => ProviderView;
    /// Says something else of a provider, whole.
    put_provider(name: &str) body request: ProviderRequest => PUT "/v1/providers/{name}" => ProviderView;
    /// Removes a provider and its stored key.
    delete_provider(name: &str) => DELETE "/v1/providers/{name}" => ();

    /// Stored secrets, without values.
    secrets() => GET "/v1/secrets" => Vec<SecretView>;
    /// Stored logins, without their files.
    logins() => GET "/v1/logins" => Vec<LoginView>;
    /// Removes a login.
    delete_login(name: &str) => DELETE "/v1/logins/{name}" => ();
    /// Harnesses.
    harnesses() => GET "/v1/harnesses" => Vec<HarnessView>;
    /// Installs a harness; answers when done.
    install_harness(name: &str) => POST "/v1/harnesses/{name}/install" => HarnessView;
    /// Images of the backends (`backend` empty: all).
    images() => GET "/v1/images" => Vec<ImageView>;
    /// Images of one backend.
    images_of(backend: &str) => GET "/v1/images?backend={backend}" => Vec<ImageView>;
    /// Gets an image from its registry.
    pull_image() body request: PullRequest => POST "/v1/images/pull" => BuildView;
    /// Gives an image another name.
    tag_image() body request: TagRequest => POST "/v1/images/tag" => ImageView;
    /// Builds one of Handler's own images.
    build_target() body request: BuildRequest => POST "/v1/builds" => BuildView;
    /// Builds, newest first.
    builds() => GET "/v1/builds" => Vec<BuildView>;
    /// One build.
    build(id: &str) => GET "/v1/builds/{id}" => BuildView;
    /// Cancels a build.
    cancel_build(id: &str) => POST "/v1/builds/{id}/cancel" => BuildView;
    /// When harness images are rebuilt by themselves.
    image_updates() => GET "/v1/image-updates" => ImageUpdates;
    /// Sets that.
    set_image_updates() body request: ImageUpdatesRequest => PUT "/v1/image-updates" => ImageUpdates;
    /// Rebuilds every harness image now.
    run_image_updates() => POST "/v1/image-updates/run" => ImageUpdates;
    /// Where the knowledge root is, and its folders.
    knowledge() => GET "/v1/knowledge" => KnowledgeListing;
    /// Says where the knowledge root is.
    set_knowledge_root() body request: SetKnowledgeRootRequest => PUT "/v1/knowledge/root" => KnowledgeListing;
    /// Makes a knowledge folder.
    make_knowledge_folder() body request: KnowledgeFolderRequest => POST "/v1/knowledge/folders" => KnowledgeFolderView;
    /// What is in a knowledge folder.
    browse_knowledge(path: &str) => GET "/v1/knowledge/browse?path={path}" => KnowledgeFolderView;
    /// A note.
    knowledge_note(path: &str) => GET "/v1/knowledge/note?path={path}" => KnowledgeNote;
    /// Work folders, as written.
    folders() => GET "/v1/folders" => WorkFoldersInfo;
    /// Sets the whole list of them.
    set_folders() body request: WorkFoldersRequest => PUT "/v1/folders" => WorkFoldersInfo;
    /// Lets agents work in a folder.
    add_folder() body request: FolderRequest => POST "/v1/folders" => WorkFoldersInfo;
    /// Takes a folder off the list.
    remove_folder(path: &str) => DELETE "/v1/folders?path={path}" => WorkFoldersInfo;
    /// The folders in a folder that agents may work in; an empty path: the roots.
    directories(path: &str) => GET "/v1/directories?path={path}" => DirectoryListing;
    /// Makes a folder there.
    make_directory() body request: CreateDirectoryRequest => POST "/v1/directories" => DirectoryListing;
    /// Caches: declared, kept, and where.
    caches() => GET "/v1/caches" => CachesInfo;
    /// Declares caches, all of them.
    set_caches() body request: CachesRequest => PUT "/v1/caches" => CachesInfo;
    /// Bytes on disk of each cache.
    cache_sizes() => GET "/v1/caches/sizes" => CacheSizes;
    /// Empties the shared caches.
    clear_caches() => DELETE "/v1/caches/files" => ();
    /// Empties a shared cache.
    clear_cache(name: &str) => DELETE "/v1/caches/{name}/files" => ();
    /// Empties a project's own caches.
    clear_project_caches(project: &str) => DELETE "/v1/projects/{project}/caches" => ();
    /// Empties one of a project's own caches.
    clear_project_cache(project: &str, name: &str) => DELETE "/v1/projects/{project}/caches/{name}/files" => ();
}

impl Client {
    /// Stores a secret.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_secret(&self, path: &str, request: &SecretRequest) -> Answer<SecretView> {
        self.call(
            Method::PUT,
            &format!("/v1/secrets/{}", encode_path(path)),
            Some(request),
        )
        .await
    }

    /// Stores a login.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn put_login(&self, name: &str, request: &LoginRequest) -> Answer<LoginView> {
        self.call(
            Method::PUT,
            &format!("/v1/logins/{}", encode(name)),
            Some(request),
        )
        .await
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete_secret(&self, path: &str) -> Answer<()> {
        self.call(
            Method::DELETE,
            &format!("/v1/secrets/{}", encode_path(path)),
            NO_BODY,
        )
        .await
    }

    /// Changes what a session's sandbox may reach besides its model's host, live and for later starts.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_session_network(
        &self,
        id: &str,
        network: &NetworkPolicy,
    ) -> Answer<SessionView> {
        let update = NetworkUpdate {
            network: network.clone(),
        };
        self.call(
            Method::PUT,
            &format!("/v1/sessions/{}/network", encode(id)),
            Some(&update),
        )
        .await
    }
}

/// Encodes each segment, keeping the slashes.
fn encode_path(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

impl Client {
    /// A page of sandboxes that fit a query: names and values as `GET /v1/sandboxes` takes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn find_sandboxes(&self, query: &[(&str, &str)]) -> Answer<Page<SandboxView>> {
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        let path = format!("/v1/sandboxes?{}", query.join("&"));
        self.call(Method::GET, &path, NO_BODY).await
    }
}
