//! What each harness is launched with, compared with the files in `snapshots/`.

use crate::support::{BARE, GATEWAY, LOOPBACK, PHANTOM, VENDOR, input, launch};
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
fn each_mode_sets_its_session_mode() {
    for (mode, ids) in [
        (Ask, ["default"]),
        (AcceptEdits, ["acceptEdits"]),
        (Bypass, ["bypassPermissions"]),
    ] {
        let launch = launch("claude-code", &input(BARE, mode));
        assert_eq!(launch.session_defaults.mode_ids, ids);
    }
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
    for harness in ["claude-code", "pi"] {
        for provider in [LOOPBACK, GATEWAY, BARE] {
            let bytes = || serde_json::to_vec(&launch(harness, &input(provider, Bypass)));
            assert_eq!(bytes().expect("json"), bytes().expect("json"));
        }
    }
}

#[test]
fn the_key_is_in_the_environment_and_nowhere_else() {
    for (harness, provider) in [
        ("claude-code", VENDOR),
        ("claude-code", GATEWAY),
        ("pi", GATEWAY),
        ("pi", VENDOR),
    ] {
        let mut launch = launch(harness, &input(provider, Bypass));
        let holders = launch.env.values().filter(|v| v.contains(PHANTOM)).count();
        assert!(holders >= 1, "{harness}");
        launch.env.clear();
        let rest = serde_json::to_string(&launch).expect("json");
        assert!(!rest.contains(PHANTOM), "{harness}: {rest}");
    }
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
            input.provider.endpoints = template.endpoints.clone();
            input.provider.models = template.models.clone();
            for model in &template.models {
                input.model = model.id.clone();
                assert_eq!(launch(&harness, &input).egress.len(), 1);
            }
        }
    }
}
