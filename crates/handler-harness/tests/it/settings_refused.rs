//! Settings that cannot be honoured are refused, with words that say what to do.

use crate::support::{
    BARE, FULL, PHANTOM, TOKEN, account, input, logged_in, provided, remote, stdio, token_account,
};
use handler_harness::{descriptor, render};
use handler_types::harness::AccountLogin;
use handler_types::harness::McpTransport::{Http, Sse};
use handler_types::harness::PermissionMode::{Ask, Bypass};
use handler_types::harness::{McpServer, RenderInput};

fn refused(harness: &str, change: impl FnOnce(&mut RenderInput)) -> String {
    refused_of(harness, input(FULL, Bypass), change)
}

fn refused_of(
    harness: &str,
    mut input: RenderInput,
    change: impl FnOnce(&mut RenderInput),
) -> String {
    change(&mut input);
    let error = render(descriptor(harness).expect("known"), &input).expect_err("refused");
    let error = error.to_string();
    assert!(
        !error.contains(PHANTOM) && !error.contains(TOKEN),
        "{error}"
    );
    error
}

fn with_servers(servers: Vec<McpServer>) -> impl FnOnce(&mut RenderInput) {
    move |input| input.mcp_servers = servers
}

#[test]
fn what_an_account_cannot_be_is_refused() {
    let token = || token_account(Bypass);
    for (text, expected) in [
        (
            refused_of("pi", token(), |_| ()),
            "pi cannot run on the account `me`: it has no accounts; give the agent a provider instead",
        ),
        (
            refused_of("codex", token(), |_| ()),
            "Codex cannot run on the account `me`: it logs in with a file, not a token; log in again",
        ),
        (
            refused_of(
                "claude-code",
                account(AccountLogin::File("/x".to_owned()), Ask),
                |_| (),
            ),
            "Claude Code cannot run on the account `me`: it logs in with a token, not a file; log in again",
        ),
        (
            refused_of(
                "claude-code",
                account(AccountLogin::Token("code#123".to_owned()), Ask),
                |_| (),
            ),
            "Claude Code cannot run on the account `me`: its token does not start with `sk-ant-oat01-`; log in again with what `claude setup-token` prints",
        ),
        (
            refused_of("claude-code", token(), |i| {
                logged_in(i).plan = Some("gold".to_owned());
            }),
            "Claude Code cannot run on the account `me`: there is no plan `gold`; choose one of: pro, max, team, enterprise",
        ),
        (
            refused_of(
                "codex",
                account(AccountLogin::File("/x".to_owned()), Bypass),
                |i| logged_in(i).connectors = true,
            ),
            "Codex cannot run on the account `me`: its accounts have no connectors; turn them off for it",
        ),
        (
            refused_of(
                "codex",
                account(AccountLogin::File("/x".to_owned()), Bypass),
                |i| logged_in(i).plan = Some("plus".to_owned()),
            ),
            "Codex cannot run on the account `me`: its accounts have no plans; remove the plan",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn what_a_harness_cannot_be_given_is_refused() {
    let sse = || remote("far", Sse, "https://mcp.example.com");
    for (text, expected) in [
        (
            refused("pi", with_servers(vec![stdio("t")])),
            "pi cannot reach the MCP server `t`: it takes none at all, not stdio",
        ),
        (
            refused("codex", with_servers(vec![sse()])),
            "Codex cannot reach the MCP server `far`: it takes stdio, http, not sse",
        ),
        (
            refused("codex", with_servers(vec![stdio("a"), stdio("a")])),
            "the MCP server `a` has the name of another; rename one of them",
        ),
        (
            refused(
                "opencode",
                with_servers(vec![remote("x", Http, "ftp://a.example.com")]),
            ),
            "the MCP server `x` has no usable address: it must start with http:// or https://",
        ),
        (
            refused("opencode", |i| {
                i.skills = vec!["/a/one".to_owned(), "/b/one".to_owned()];
            }),
            "the skill folder `/b/one` has the name of another; rename one of them",
        ),
        (
            refused("opencode", |i| i.skills = vec!["one".to_owned()]),
            "the skill folder `one` must be an absolute path whose last part can be a skill's name",
        ),
        (
            refused("vibe", |i| i.skills = vec!["/a/..".to_owned()]),
            "the skill folder `/a/..` must be an absolute path whose last part can be a skill's name",
        ),
        (
            refused("pi", |i| {
                i.caches = [("~/../x".to_owned(), "/y".to_owned())].into();
            }),
            "the cache `~/../x` must be a path below ~/ and come from an absolute folder",
        ),
        (
            refused("pi", |i| i.instructions = Some("x".repeat(300_000))),
            "the instructions are longer than 256 KiB or hold a NUL character; shorten them",
        ),
        (
            refused("codex", |i| i.terminal = Some(Vec::new())),
            "Codex has no terminal program here; run it as a session",
        ),
        (
            refused("gemini-cli", |i| {
                i.terminal = Some(Vec::new());
                i.mcp_servers = vec![stdio("t")];
            }),
            "Gemini CLI takes no MCP servers in its terminal; remove them from the agent",
        ),
        (
            refused("pi", |i| i.scope = "here".to_owned()),
            "the project folder must be an absolute path without control characters",
        ),
        (
            refused("vibe", |i| {
                provided(i)
                    .files
                    .insert("config_toml".to_owned(), String::new());
            }),
            "the provider `mine` cannot give Mistral Vibe the file `config_toml`: it is written from the provider's other settings; remove it",
        ),
        (
            refused("vibe", |i| {
                provided(i).files.insert("notes".to_owned(), String::new());
            }),
            "the provider `mine` cannot give Mistral Vibe the file `notes`: it reads: config_toml",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn a_harness_without_a_place_for_it_refuses() {
    let mut bare = descriptor("claude-code").expect("known").clone();
    bare.skills_dir = None;
    bare.instructions_file = None;
    bare.model_option = None;
    let refusal = |input: &RenderInput| render(&bare, input).expect_err("refused").to_string();
    let mut skills = input(BARE, Ask);
    skills.skills = vec!["/skills/one".to_owned()];
    assert_eq!(
        refusal(&skills),
        "Claude Code has no skills; remove them from the agent"
    );
    let mut told = input(BARE, Ask);
    told.instructions = Some("Be brief.".to_owned());
    assert_eq!(
        refusal(&told),
        "Claude Code has no file for instructions; remove them from the agent"
    );
    let mut chosen = token_account(Ask);
    logged_in(&mut chosen).model = Some("opus".to_owned());
    assert_eq!(
        refusal(&chosen),
        "Claude Code has no option for the model; leave the model out"
    );
}
