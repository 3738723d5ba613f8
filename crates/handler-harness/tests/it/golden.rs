//! What each harness is launched with, compared with the files in `snapshots/`.

use crate::support::{
    ALL, BARE, FULL, GATEWAY, GEMINI, LOOPBACK, PHANTOM, VENDOR, input, launch, provided,
};
use handler_types::harness::PermissionMode::{AcceptEdits, Ask, Bypass};
use insta::assert_json_snapshot;

#[test]
fn claude_code_on_the_vendor_with_a_key() {
    assert_json_snapshot!(launch("claude-code", &input(VENDOR, Ask)));
}

#[test]
fn claude_code_on_loopback_without_a_key_as_root() {
    let mut input = input(LOOPBACK, Bypass);
    input.is_root = true;
    assert_json_snapshot!(launch("claude-code", &input));
}

#[test]
fn claude_code_on_a_gateway_with_a_port() {
    assert_json_snapshot!(launch("claude-code", &input(GATEWAY, AcceptEdits)));
}

#[test]
fn pi_on_the_vendor_with_a_key() {
    assert_json_snapshot!(launch("pi", &input(VENDOR, Bypass)));
}

#[test]
fn pi_on_loopback_without_a_key() {
    assert_json_snapshot!(launch("pi", &input(LOOPBACK, Bypass)));
}

#[test]
fn pi_on_a_gateway_with_a_port() {
    assert_json_snapshot!(launch("pi", &input(GATEWAY, Bypass)));
}

#[test]
fn codex_with_every_field_and_with_none() {
    assert_json_snapshot!("codex_full", launch("codex", &input(FULL, Ask)));
    let bare = BARE.replace("openai-chat", "responses");
    assert_json_snapshot!("codex_bare", launch("codex", &input(&bare, Bypass)));
}

#[test]
fn gemini_cli_on_its_vendor_and_elsewhere() {
    let vendor = GEMINI.replace(
        "http://127.0.0.1:4100",
        "https://generativelanguage.googleapis.com",
    );
    assert_json_snapshot!("gemini_vendor", launch("gemini-cli", &input(&vendor, Ask)));
    assert_json_snapshot!(
        "gemini_loopback",
        launch("gemini-cli", &input(GEMINI, AcceptEdits))
    );
}

#[test]
fn opencode_with_every_field_and_with_none() {
    assert_json_snapshot!("opencode_full", launch("opencode", &input(FULL, Ask)));
    assert_json_snapshot!("opencode_bare", launch("opencode", &input(BARE, Bypass)));
}

#[test]
fn opencode_takes_each_protocol_with_its_own_package() {
    for (protocol, package, url) in [
        ("anthropic", "@ai-sdk/anthropic", "https://m.example.com/v1"),
        (
            "openai-chat",
            "@ai-sdk/openai-compatible",
            "https://m.example.com",
        ),
        ("responses", "@ai-sdk/openai", "https://m.example.com"),
        ("gemini", "@ai-sdk/google", "https://m.example.com/v1beta"),
    ] {
        let provider = BARE
            .replace("anthropic = \"http://192.168.1.20\"\n", "")
            .replace("openai-chat", protocol)
            .replace("http://192.168.1.20/v1", "https://m.example.com");
        let launch = launch("opencode", &input(&provider, Bypass));
        let config: serde_json::Value =
            serde_json::from_str(&launch.files[0].content).expect("json");
        let server = &config["provider"]["handler"];
        assert_eq!(server["npm"], package, "{protocol}");
        assert_eq!(server["options"]["baseURL"], url, "{protocol}");
    }
}

#[test]
fn qwen_code_with_every_field_and_with_none() {
    assert_json_snapshot!("qwen_full", launch("qwen-code", &input(FULL, Ask)));
    assert_json_snapshot!("qwen_bare", launch("qwen-code", &input(BARE, AcceptEdits)));
}

#[test]
fn vibe_with_every_field_and_with_none() {
    assert_json_snapshot!("vibe_full", launch("vibe", &input(FULL, Ask)));
    assert_json_snapshot!("vibe_bare", launch("vibe", &input(BARE, Bypass)));
}

#[test]
fn each_mode_sets_its_session_mode_or_environment() {
    let modes = [Ask, AcceptEdits, Bypass];
    for (harness, ids) in [
        (
            "claude-code",
            ["default", "acceptEdits", "bypassPermissions"],
        ),
        (
            "codex",
            ["read-only", "workspace-write", "agent-full-access"],
        ),
        ("gemini-cli", ["default", "autoEdit", "yolo"]),
        ("qwen-code", ["default", "auto-edit", "yolo"]),
        ("vibe", ["ask", "accept-edits", "auto-approve"]),
    ] {
        for (mode, id) in modes.into_iter().zip(ids) {
            let launch = launch(harness, &input(FULL, mode));
            assert_eq!(launch.session_defaults.mode_ids[0], id, "{harness}");
        }
    }
    let rules = |mode| -> serde_json::Value {
        let launch = launch("opencode", &input(FULL, mode));
        assert!(launch.session_defaults.mode_ids.is_empty());
        serde_json::from_str(&launch.env["OPENCODE_PERMISSION"]).expect("json")
    };
    assert_eq!(
        (&rules(Ask)["*"], &rules(Ask)["edit"]),
        (&"ask".into(), &serde_json::Value::Null)
    );
    assert_eq!(rules(AcceptEdits)["edit"], "allow");
    assert_eq!(rules(AcceptEdits)["*"], "ask");
    assert_eq!(rules(Bypass)["*"], "allow");
    let launch = launch("pi", &input(BARE, Bypass));
    assert!(launch.session_defaults.mode_ids.is_empty());
}

#[test]
fn only_root_is_told_that_it_is_in_a_sandbox() {
    let mut input = input(BARE, Bypass);
    assert!(!launch("claude-code", &input).env.contains_key("IS_SANDBOX"));
    input.is_root = true;
    assert_eq!(launch("claude-code", &input).env["IS_SANDBOX"], "1");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for harness in ALL {
        let bytes = || serde_json::to_vec(&launch(harness, &input(FULL, Bypass)));
        assert_eq!(bytes().expect("json"), bytes().expect("json"));
    }
}

#[test]
fn the_key_is_in_the_environment_and_nowhere_else() {
    let keyed = ALL.map(|harness| (harness, FULL));
    let more = [("claude-code", VENDOR), ("pi", GATEWAY), ("pi", VENDOR)];
    for (harness, provider) in keyed.into_iter().chain(more) {
        let mut launch = launch(harness, &input(provider, Bypass));
        let holders = launch.env.values().filter(|v| v.contains(PHANTOM)).count();
        assert!(holders >= 1, "{harness}");
        launch.env.clear();
        let rest = serde_json::to_string(&launch).expect("json");
        assert!(!rest.contains(PHANTOM), "{harness}: {rest}");
    }
}

/// What a limit changes, as text.
fn changed(harness: &str, field: &str) -> bool {
    let base = FULL
        .replace("contextWindow = 100000\n", "")
        .replace("maxOutput = 20000\n", "");
    let text = |provider: &str| {
        let launch = launch(harness, &input(provider, Bypass));
        serde_json::to_string(&launch).expect("json")
    };
    text(&base) != text(&format!("{base}{field} = 54321\n"))
}

#[test]
fn a_limit_reaches_each_harness_that_is_said_to_have_a_setting() {
    for harness in ALL {
        let limits = &handler_harness::descriptor(harness).expect("known").limits;
        assert_eq!(
            changed(harness, "contextWindow"),
            limits.context_window.is_some(),
            "{harness}"
        );
        // Codex has no such setting, but leaves that much room in its window.
        let has_setting = limits.max_output.is_some() || harness == "codex";
        assert_eq!(changed(harness, "maxOutput"), has_setting, "{harness}");
    }
}

#[test]
fn a_conversation_is_made_shorter_while_an_answer_still_fits() {
    let files = |harness: &str| {
        let launch = launch(harness, &input(FULL, Bypass));
        let texts: Vec<_> = launch.files.into_iter().map(|f| f.content).collect();
        texts.join("\n")
    };
    // 100 000 tokens with 20 000 of them for an answer.
    assert!(files("codex").contains("\"auto_compact_token_limit\": 80000"));
    assert!(files("vibe").contains("auto_compact_threshold = 80000"));
    let part = 80_000.0 / 1_048_576.0;
    assert!(files("gemini-cli").contains(&format!("\"compressionThreshold\": {part}")));
    assert!(files("opencode").contains("\"output\": 20000"));
    assert!(files("qwen-code").contains("\"max_tokens\": 20000"));
    assert!(files("pi").contains("\"reserveTokens\": 20000"));
}

#[test]
fn a_model_without_limits_leaves_the_harness_its_own() {
    let launch = launch("claude-code", &input(BARE, Bypass));
    assert!(!launch.env.keys().any(|name| name.contains("TOKENS")));
    assert_eq!(launch.egress[0].to_string(), "192.168.1.20:80");
}

#[test]
fn an_answer_always_fits_into_half_of_the_window() {
    for (window, output, expected) in [
        (32_768, "", "16384"),
        (8_192, "", "4096"),
        (16_384, "maxOutput = 12000\n", "8192"),
        (200_000, "maxOutput = 64000\n", "64000"),
    ] {
        let provider = format!("{BARE}contextWindow = {window}\n{output}");
        let claude = launch("claude-code", &input(&provider, Bypass));
        assert_eq!(claude.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], expected);
        let pi = launch("pi", &input(&provider, Bypass));
        let settings: serde_json::Value = serde_json::from_str(&pi.files[1].content).expect("json");
        let compaction = &settings["compaction"];
        assert_eq!(compaction["reserveTokens"].to_string(), expected);
        let kept = compaction["keepRecentTokens"].as_u64().expect("number");
        assert!(kept + expected.parse::<u64>().expect("number") < window);
    }
}

#[test]
fn an_alias_leads_to_a_model_of_the_provider() {
    let claude = launch("claude-code", &input(VENDOR, Bypass));
    let alias = |family: &str| claude.env[&format!("ANTHROPIC_DEFAULT_{family}_MODEL")].as_str();
    assert_eq!(alias("HAIKU"), "claude-haiku-5-5");
    assert_eq!(alias("SONNET"), "claude-sonnet-5-5");
    assert_eq!(alias("OPUS"), "claude-sonnet-5-5");
}

#[test]
fn every_template_renders_for_every_harness_it_serves() {
    for template in handler_harness::templates() {
        for harness in handler_harness::usable_harnesses(&template.endpoints) {
            let mut input = input(BARE, Bypass);
            let access = provided(&mut input);
            access.provider.endpoints = template.endpoints.clone();
            access.provider.models = template.models.clone();
            for model in &template.models {
                provided(&mut input).model = model.id.clone();
                assert_eq!(launch(&harness, &input).egress.len(), 1);
            }
        }
    }
}
