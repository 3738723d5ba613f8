//! What cannot be honoured is refused, with words that help.

use crate::support::{BARE, GATEWAY, PHANTOM, input, provided};
use handler_harness::{descriptor, render};
use handler_types::harness::PermissionMode::{AcceptEdits, Ask, Bypass};
use handler_types::harness::RenderInput;
use std::error::Error as _;

fn refusal(harness: &str, input: &RenderInput) -> String {
    let error = render(descriptor(harness).expect("known"), input).expect_err("refused");
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn a_mode_the_harness_lacks_is_refused_with_the_modes_it_has() {
    assert_eq!(
        refusal("pi", &input(BARE, Ask)),
        "pi cannot run in the mode `ask`; it has: bypass"
    );
    assert_eq!(
        refusal("pi", &input(BARE, AcceptEdits)),
        "pi cannot run in the mode `accept-edits`; it has: bypass"
    );
}

#[test]
fn a_model_the_provider_lacks_is_refused_with_the_nearest_one() {
    let mut wrong = input(GATEWAY, Bypass);
    provided(&mut wrong).model = "house/larg".to_owned();
    assert_eq!(
        refusal("claude-code", &wrong),
        "the provider `mine` has no model `house/larg`; did you mean `house/large`?"
    );
    provided(&mut wrong).model = "x\n".repeat(100_000);
    assert!(refusal("claude-code", &wrong).ends_with("; it has: house/large"));
    assert!(refusal("claude-code", &wrong).len() < 300);
}

#[test]
fn a_provider_without_a_fitting_protocol_is_refused() {
    let mut wrong = input(BARE, Bypass);
    let endpoints = &mut provided(&mut wrong).provider.endpoints;
    let url = endpoints.pop_first().expect("anthropic").1;
    assert_eq!(
        refusal("claude-code", &wrong),
        "Claude Code speaks anthropic, the provider `mine` speaks openai-chat"
    );
    provided(&mut wrong).provider.endpoints.clear();
    assert!(refusal("pi", &wrong).ends_with("speaks nothing"));
    let gemini = handler_types::provider::Protocol::Gemini;
    provided(&mut wrong).provider.endpoints.insert(gemini, url);
    assert!(refusal("pi", &wrong).ends_with("speaks gemini"));
}

#[test]
fn an_endpoint_that_is_no_address_is_refused() {
    let mut wrong = input(BARE, Bypass);
    for url in provided(&mut wrong).provider.endpoints.values_mut() {
        "http://gpu-box:8080".clone_into(url);
    }
    assert_eq!(
        refusal("pi", &wrong),
        "the openai-chat endpoint of the provider `mine` is not usable: `gpu-box:8080`: the host must be \
         a full domain name, `*.` and a domain name, or an IP address (IPv6 in brackets; international names as xn--…)"
    );
}

#[test]
fn a_key_no_header_can_carry_is_refused_and_not_shown() {
    for key in ["", "two\nlines", "schlüssel", "nul\0"] {
        let mut wrong = input(GATEWAY, Bypass);
        provided(&mut wrong).key = Some(key.to_owned());
        let text = refusal("claude-code", &wrong);
        assert!(text.contains("key of the provider `mine`"), "{text}");
        assert!(key.is_empty() || !text.contains(key));
    }
    let mut wrong = input(GATEWAY, Ask);
    provided(&mut wrong).key = Some(PHANTOM.to_owned());
    assert!(!refusal("pi", &wrong).contains(PHANTOM));
}

#[test]
fn a_limit_out_of_range_is_refused() {
    for (field, value) in [("contextWindow", 0), ("maxOutput", 100_000_001)] {
        let wrong = input(&format!("{BARE}{field} = {value}\n"), Bypass);
        assert!(refusal("pi", &wrong).contains(&format!("a {field} of {value}")));
    }
}

#[test]
fn a_prefix_that_path_cannot_hold_is_refused() {
    for prefix in ["", "relative", "/a:b", "/a/", "/a\nb"] {
        let mut wrong = input(BARE, Bypass);
        wrong.prefix = prefix.to_owned();
        assert!(refusal("pi", &wrong).contains("prefix"), "{prefix:?}");
    }
}

#[test]
fn a_harness_nobody_wrote_a_rendering_for_is_refused() {
    let mut other = descriptor("pi").expect("known").clone();
    other.name = "other".to_owned();
    other.product = "Other".to_owned();
    let error = render(&other, &input(BARE, Bypass)).expect_err("refused");
    assert_eq!(error.to_string(), "Other has no rendering of its settings");
}
