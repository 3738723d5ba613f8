//! An agent's settings besides its model: account, skills, MCP servers, instructions, caches, terminal.

use crate::support::{
    ALL, FULL, TOKEN, account, input, launch, logged_in, provided, remote, stdio, token_account,
};
use handler_harness::{descriptor, render};
use handler_types::harness::AccountLogin;
use handler_types::harness::McpTransport::{Http, Sse, Stdio};
use handler_types::harness::PermissionMode::{AcceptEdits, Ask, Bypass};
use handler_types::harness::{HarnessLaunch, RenderInput};
use insta::assert_json_snapshot;

#[test]
fn an_account_with_a_token() {
    let mut input = token_account(Ask);
    let access = logged_in(&mut input);
    access.plan = Some("max".to_owned());
    access.connectors = true;
    access.model = Some("opus".to_owned());
    assert_json_snapshot!(launch("claude-code", &input));
}

#[test]
fn an_account_with_a_login_file() {
    let file = || AccountLogin::File("/data/accounts/me/login".to_owned());
    assert_json_snapshot!(
        "login_file_codex",
        launch("codex", &account(file(), Bypass))
    );
    let vibe = launch("vibe", &account(file(), Bypass));
    assert_eq!(vibe.mounts[0].target, "/home/agent/.vibe/.env");
    assert!(vibe.mounts[0].read_only, "never rewritten");
    assert_eq!(vibe.egress[0].to_string(), "api.mistral.ai:443");
    assert!(vibe.files.is_empty(), "its own settings: {:?}", vibe.files);
}

#[test]
fn a_token_is_in_the_environment_only_and_kept_from_servers() {
    let mut input = token_account(Bypass);
    input.mcp_servers = vec![stdio("tools")];
    let mut launch = launch("claude-code", &input);
    assert_eq!(launch.env["CLAUDE_CODE_OAUTH_TOKEN"], TOKEN);
    launch.env.clear();
    let rest = serde_json::to_string(&launch).expect("json");
    assert!(!rest.contains(TOKEN), "{rest}");
    assert!(
        rest.contains("\"-u\",\"CLAUDE_CODE_OAUTH_TOKEN\""),
        "{rest}"
    );
    assert!(!format!("{:?}", input.access).contains(TOKEN));
}

#[test]
fn skills_are_below_the_folder_of_each_harness() {
    for harness in ALL {
        let mut input = input(FULL, Bypass);
        input.skills = vec!["/skills/one".to_owned(), "/skills/two words".to_owned()];
        let launch = launch(harness, &input);
        let folder = descriptor(harness).expect("known").skills_dir.as_deref();
        let folder = folder.expect("all have one").replace('~', "/home/agent");
        let places: Vec<_> = launch.mounts.iter().map(|m| m.target.clone()).collect();
        assert_eq!(
            places,
            ["one", "two words"].map(|n| format!("{folder}/{n}"))
        );
        assert!(launch.mounts.iter().all(|mount| mount.read_only));
    }
}

#[test]
fn caches_are_writable_below_the_home() {
    let mut input = input(FULL, Bypass);
    input.caches = [("~/.npm".to_owned(), "/data/caches/npm".to_owned())].into();
    let mount = launch("pi", &input).mounts.remove(0);
    assert_eq!(
        (
            mount.source.as_str(),
            mount.target.as_str(),
            mount.read_only
        ),
        ("/data/caches/npm", "/home/agent/.npm", false)
    );
}

#[test]
fn instructions_are_where_each_harness_reads_them() {
    for harness in ALL {
        let mut input = input(FULL, Bypass);
        input.instructions = Some("Be brief.".to_owned());
        let launch = launch(harness, &input);
        let path = descriptor(harness)
            .expect("known")
            .instructions_file
            .as_deref();
        let path = path.expect("all have one").replace('~', "/home/agent");
        let file = launch.files.iter().find(|file| file.target == path);
        let file = file.expect(harness);
        assert_eq!((file.content.as_str(), file.writable), ("Be brief.", false));
        assert!(!launch.argv.iter().any(|arg| arg == "Be brief."));
    }
}

fn servers(launch: &HarnessLaunch) -> Vec<String> {
    let servers = &launch.session_defaults.mcp_servers;
    let all = servers
        .iter()
        .map(|s| serde_json::to_string(s).expect("json"));
    all.collect()
}

#[test]
fn servers_see_the_sandbox_and_not_the_key() {
    let mut input = input(FULL, Bypass);
    input.mcp_servers = vec![stdio("tools")];
    for (harness, start) in [
        (
            "claude-code",
            r#""command":"/usr/bin/env","args":["-u","ANTHROPIC_API_KEY","-u","ANTHROPIC_AUTH_TOKEN","--","tools","--serve"]"#,
        ),
        (
            "codex",
            r#""command":"/handler/bin/handler-sandbox-env","args":["--drop","HANDLER_MODEL_KEY","--","tools","--serve"]"#,
        ),
        (
            "gemini-cli",
            r#""command":"/handler/bin/handler-sandbox-env","args":["--drop","GEMINI_API_KEY","--","tools","--serve"]"#,
        ),
        (
            "opencode",
            r#""command":"/usr/bin/env","args":["-u","HANDLER_MODEL_KEY","--","tools","--serve"]"#,
        ),
        (
            "vibe",
            r#""command":"/handler/bin/handler-sandbox-env","args":["--drop","HANDLER_MODEL_KEY","--","tools","--serve"]"#,
        ),
    ] {
        let launch = launch(harness, &input);
        assert!(
            servers(&launch)[0].contains(start),
            "{harness}: {:?}",
            servers(&launch)
        );
        let script = launch
            .files
            .iter()
            .find(|f| f.target.ends_with("handler-sandbox-env"));
        assert_eq!(
            script.is_some(),
            start.contains("handler-sandbox-env"),
            "{harness}"
        );
        assert!(script.is_none_or(|f| f.mode == 0o755 && !f.writable));
    }
}

#[test]
fn a_server_with_an_address_is_allowed_and_loopback_is_the_machine() {
    let mut input = input(FULL, Bypass);
    input.mcp_servers = vec![
        remote("far", Http, "https://mcp.example.com/v1/?team=a"),
        remote("near", Sse, "http://localhost:7000/sse"),
    ];
    let launch = launch("claude-code", &input);
    let entries: Vec<_> = launch.egress.iter().map(ToString::to_string).collect();
    assert_eq!(
        entries,
        [
            "models.example.com:443",
            "mcp.example.com:443",
            "host.containers.internal:7000"
        ]
    );
    let servers = servers(&launch);
    assert!(
        servers[0].contains("\"https://mcp.example.com/v1/?team=a\""),
        "{servers:?}"
    );
    assert!(servers[1].contains("\"http://host.containers.internal:7000/sse\""));
    assert!(servers[1].contains("\"type\":\"sse\""));
}

#[test]
fn a_harness_that_reads_servers_from_a_file_gets_one() {
    let mut reads = descriptor("pi").expect("known").clone();
    reads.mcp_transports = vec![Stdio, Http];
    reads.mcp_config_file = Some("~/.config/mcp/mcp.json".to_owned());
    let mut input = input(FULL, Bypass);
    input.mcp_servers = vec![
        stdio("tools"),
        remote("far", Http, "https://mcp.example.com"),
    ];
    let launch = render(&reads, &input).expect("rendered");
    let file = launch.files.iter().find(|f| f.target.ends_with("mcp.json"));
    let file = file.expect("a file");
    assert_eq!(
        (file.target.as_str(), file.mode),
        ("/home/agent/.config/mcp/mcp.json", 0o444)
    );
    let content: serde_json::Value = serde_json::from_str(&file.content).expect("json");
    assert_json_snapshot!("mcp_config_file", content);
    assert_eq!(
        launch.session_defaults.mcp_servers.len(),
        2,
        "sessions carry them too"
    );
}

fn terminal(mut input: RenderInput) -> RenderInput {
    input.terminal = Some(vec!["--continue".to_owned()]);
    input.instructions = Some("Be brief.".to_owned());
    input
}

#[test]
fn terminals_take_flags_and_files() {
    let mut claude = terminal(token_account(AcceptEdits));
    claude.mcp_servers = vec![
        stdio("tools"),
        remote("far", Sse, "https://mcp.example.com"),
    ];
    logged_in(&mut claude).model = Some("opus".to_owned());
    let launched = launch("claude-code", &claude);
    assert_json_snapshot!("terminal_claude_code", (&launched.argv, &launched.files));
    assert_eq!(launched.session_defaults, Default::default());
    for (harness, mode, argv) in [
        (
            "gemini-cli",
            AcceptEdits,
            "node_modules/.bin/gemini --approval-mode auto_edit --continue",
        ),
        (
            "qwen-code",
            Ask,
            "node_modules/.bin/qwen --approval-mode default --continue",
        ),
        ("opencode", Ask, "x/bin/opencode --continue"),
        (
            "vibe",
            Bypass,
            "venv/bin/vibe --agent auto-approve --continue",
        ),
    ] {
        let launch = launch(harness, &terminal(input(FULL, mode)));
        assert!(launch.argv.join(" ").ends_with(argv), "{:?}", launch.argv);
        assert!(
            launch.files.iter().any(|f| f.content == "Be brief."),
            "{harness}"
        );
    }
}

#[test]
fn a_terminal_takes_model_and_servers_from_its_environment() {
    let file = AccountLogin::File("/data/login".to_owned());
    let mut vibe = terminal(account(file, Ask));
    logged_in(&mut vibe).model = Some("codestral".to_owned());
    vibe.mcp_servers = vec![stdio("tools")];
    let launch = launch("vibe", &vibe);
    assert_eq!(launch.env["VIBE_ACTIVE_MODEL"], "codestral");
    let list: Vec<serde_json::Value> =
        serde_json::from_str(&launch.env["VIBE_MCP_SERVERS"]).expect("json");
    assert_eq!(list[0]["transport"], "stdio");
    assert_eq!(list[0]["env"]["DEPTH"], "2");
}

#[test]
fn a_providers_own_file_reaches_the_harness() {
    let mut input = input(FULL, Bypass);
    let files = &mut provided(&mut input).files;
    files.insert("instructions_md".to_owned(), "You are Codex.".to_owned());
    let launch = launch("codex", &input);
    let file = launch
        .files
        .iter()
        .find(|f| f.target.ends_with("instructions.md"));
    assert_eq!(file.expect("there").content, "You are Codex.");
    let config = launch
        .files
        .iter()
        .find(|f| f.target.ends_with("config.toml"));
    let named = "model_instructions_file = \"/home/agent/.codex/instructions.md\"";
    assert!(config.expect("there").content.contains(named));
}
