//! The tables of `docs/harnesses.md` are what the descriptors say.

use handler_harness::{descriptors, version_line};
use handler_types::harness::{McpTransport, PermissionMode, Unattended};
use handler_types::provider::Protocol;

const PAGE: &str = include_str!("../../../../docs/harnesses.md");

fn word<T: serde::Serialize>(value: T) -> String {
    let json = serde_json::to_value(value).expect("json");
    json.as_str().expect("a word").to_owned()
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "—".to_owned()
    } else {
        text
    }
}

/// Every row the page must have.
fn rows() -> Vec<String> {
    let mut rows = Vec::new();
    for harness in descriptors() {
        let protocols: Vec<_> = harness
            .provider_protocols
            .iter()
            .map(word::<&Protocol>)
            .collect();
        let servers: Vec<_> = harness
            .mcp_transports
            .iter()
            .map(word::<&McpTransport>)
            .collect();
        let limits = &harness.limits;
        rows.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            harness.name,
            version_line(harness).expect("a version"),
            protocols.join(", "),
            harness
                .login
                .as_ref()
                .map_or("—", |l| l.subscription.as_str()),
            or_dash(servers.join(", ")),
            limits
                .context_window
                .as_ref()
                .map_or("no setting", |_| "yes"),
            limits.max_output.as_ref().map_or("no setting", |_| "yes"),
        ));
        for mode in [
            PermissionMode::Ask,
            PermissionMode::AcceptEdits,
            PermissionMode::Bypass,
        ] {
            let (set, about) = match harness.permissions.get(&mode) {
                None => ("—".to_owned(), "Refused: it has no such mode."),
                Some(mapping) if mapping.session_modes.is_empty() && mapping.env.is_empty() => {
                    ("nothing to set".to_owned(), mapping.about.as_str())
                }
                Some(mapping) if mapping.session_modes.is_empty() => {
                    let names: Vec<_> = mapping.env.keys().map(|k| format!("`{k}`")).collect();
                    (names.join(", "), mapping.about.as_str())
                }
                Some(mapping) => {
                    let ids: Vec<_> = mapping
                        .session_modes
                        .iter()
                        .map(|i| format!("`{i}`"))
                        .collect();
                    (ids.join(", else "), mapping.about.as_str())
                }
            };
            rows.push(format!(
                "| {} | {} | {set} | {about} |",
                harness.name,
                word(mode)
            ));
        }
        if let Some(login) = &harness.login {
            let how = login
                .token_command
                .as_ref()
                .map_or("signs in on the host", String::as_str);
            let terms = match login.unattended {
                Unattended::Allowed => "allowed",
                Unattended::CheckTerms => "check the terms",
                Unattended::Refused => "refused by the terms",
            };
            rows.push(format!(
                "| {} | {} | `{how}` | {terms} |",
                harness.name, login.subscription
            ));
        }
    }
    rows
}

#[test]
fn the_page_says_what_the_descriptors_say() {
    let missing: Vec<_> = rows()
        .into_iter()
        .filter(|row| !PAGE.contains(row.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/harnesses.md lacks:\n{}",
        missing.join("\n")
    );
}
