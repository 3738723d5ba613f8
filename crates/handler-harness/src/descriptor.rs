//! The harnesses Handler knows: one `data/<name>/harness.toml` each, part of the program.
//!
//! Parsing is strict (an unknown key is an error); a test parses every file, so at run time it cannot fail.

pub(crate) mod check;

use crate::nearest::nearest;
use handler_types::harness::HarnessDescriptor;
use handler_types::provider::Protocol;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A harness's name and its file.
macro_rules! source {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../data/", $name, "/harness.toml")),
        )
    };
}

const SOURCES: [(&str, &str); 7] = [
    source!("claude-code"),
    source!("codex"),
    source!("gemini-cli"),
    source!("opencode"),
    source!("pi"),
    source!("qwen-code"),
    source!("vibe"),
];

/// A harness name nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no harness `{name}`{}", hint(.nearest.as_deref(), .known))]
pub struct UnknownHarness {
    /// What was asked for, at most 64 characters.
    pub name: String,
    /// The known name it is probably a slip of.
    pub nearest: Option<String>,
    /// All known names.
    pub known: Vec<String>,
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; known: {}", known.join(", ")),
    }
}

/// All harnesses, by name.
#[must_use]
pub fn descriptors() -> &'static [HarnessDescriptor] {
    static PARSED: OnceLock<Vec<HarnessDescriptor>> = OnceLock::new();
    PARSED.get_or_init(|| {
        SOURCES
            .iter()
            .map(|(name, text)| parse(name, text).expect("embedded and parsed by a test"))
            .collect()
    })
}

/// The harness of that name.
#[must_use]
pub fn descriptor(name: &str) -> Option<&'static HarnessDescriptor> {
    descriptors().iter().find(|known| known.name == name)
}

/// The harness of that name, or an error for people.
///
/// # Errors
/// [`UnknownHarness`], with the nearest known name.
pub fn require(name: &str) -> Result<&'static HarnessDescriptor, UnknownHarness> {
    descriptor(name).ok_or_else(|| UnknownHarness {
        name: name.chars().take(64).collect(),
        nearest: nearest(name, descriptors().iter().map(|known| known.name.as_str()))
            .map(str::to_owned),
        known: descriptors()
            .iter()
            .map(|known| known.name.clone())
            .collect(),
    })
}

/// Names of the harnesses that can use a provider with these endpoints.
#[must_use]
pub fn usable_harnesses(endpoints: &BTreeMap<Protocol, String>) -> Vec<String> {
    descriptors()
        .iter()
        .filter(|harness| {
            harness
                .provider_protocols
                .iter()
                .any(|protocol| endpoints.contains_key(protocol))
        })
        .map(|harness| harness.name.clone())
        .collect()
}

/// Reads a descriptor and checks what its type cannot say.
fn parse(name: &str, text: &str) -> Result<HarnessDescriptor, String> {
    let harness: HarnessDescriptor =
        toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
    match check::problem(name, &harness) {
        Some(problem) => Err(format!("{name}: {problem}")),
        None => Ok(harness),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_descriptor_parses_and_names_are_unique_and_sorted() {
        for (name, text) in SOURCES {
            parse(name, text).unwrap();
        }
        let names: Vec<_> = descriptors().iter().map(|d| d.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "claude-code",
                "codex",
                "gemini-cli",
                "opencode",
                "pi",
                "qwen-code",
                "vibe"
            ]
        );
    }

    fn text_of(name: &str) -> &'static str {
        SOURCES.iter().find(|source| source.0 == name).unwrap().1
    }

    #[test]
    fn an_unknown_key_is_an_error_wherever_it_is() {
        for (from, to) in [
            ("minNode", "minimumNode"),
            ("apiVersion", "colour = \"red\"\napiVersion"),
            ("tokenPrefix", "tokenStart"),
            ("instructionsFlag", "instructionFlag"),
            ("about = ", "means = "),
        ] {
            let bad = text_of("claude-code").replace(from, to);
            assert!(parse("claude-code", &bad).is_err(), "{from}");
        }
    }

    #[test]
    fn what_the_type_cannot_say_is_checked_and_named() {
        for (harness, from, to, named) in [
            (
                "pi",
                "handler.harness/v1",
                "handler.harness/v2",
                "apiVersion",
            ),
            ("pi", "handler/pi\"", "handler/pi:latest\"", "image"),
            ("pi", "[\"pi-acp\"]\nhome", "[]\nhome", "acpCommand"),
            ("pi", "minNode = \"22.19.0\"\n", "", "minNode"),
            ("pi", "\"/home/agent\"", "\"home\"", "home"),
            ("pi", "\"~/.pi/agent/sessions\"", "\"/etc\"", "`sessions`"),
            ("pi", "\"~/.pi/agent/sessions\"", "\"~/../x\"", "`sessions`"),
            (
                "codex",
                "file = \"auth_json\"",
                "file = \"sessions\"",
                "login.file",
            ),
            ("codex", "CODEX_HOME = \"{dir}\"", "X = \"y\"", "login.env"),
            ("codex", "credential = true", "", "login.file"),
            ("claude-code", "https://code", "http://code", "login.terms"),
            (
                "claude-code",
                "planEnv = \"CLAUDE_CODE_SUBSCRIPTION_TYPE\"",
                "",
                "planEnv",
            ),
            (
                "claude-code",
                "tokenCommand = \"claude setup-token\"\n",
                "",
                "tokenCommand",
            ),
            ("claude-code", "2026-10-05", "5 October", "login.checked"),
            ("claude-code", "\"bypassPermissions\"", "\"bypass\"", ""),
            (
                "vibe",
                "ask = [\"--agent\", \"ask\"]\n",
                "",
                "terminal.permissions",
            ),
            (
                "vibe",
                "modelEnv",
                "modelFlag = \"--model\"\nmodelEnv",
                "modelFlag",
            ),
            ("vibe", "minPython = \"3.12\"\n", "", "minPython"),
            (
                "opencode",
                "[permissions.bypass.env]",
                "[permissions.bypass.envs]",
                "envs",
            ),
            (
                "gemini-cli",
                "about = \"Never asks.\"",
                "about = \"\"",
                "about",
            ),
        ] {
            let good = text_of(harness);
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            match parse(harness, &bad) {
                Ok(_) => assert_eq!(named, "", "{harness}: {from}"),
                Err(error) => assert!(
                    !named.is_empty() && error.contains(named) && error.contains(harness),
                    "{from}: {error}"
                ),
            }
        }
        assert!(parse("other", text_of("pi")).is_err());
    }

    #[test]
    fn a_mistyped_harness_is_answered_with_the_nearest_name() {
        assert_eq!(require("pi").unwrap().product, "pi");
        assert_eq!(
            require("claudecode").unwrap_err().to_string(),
            "there is no harness `claudecode`; did you mean `claude-code`?"
        );
        assert_eq!(
            require("emacs").unwrap_err().to_string(),
            "there is no harness `emacs`; known: claude-code, codex, gemini-cli, opencode, pi, qwen-code, vibe"
        );
    }

    #[test]
    fn a_provider_is_usable_where_a_protocol_fits() {
        let one = |protocol| BTreeMap::from([(protocol, "http://127.0.0.1:1".to_owned())]);
        for (protocol, names) in [
            (Protocol::Anthropic, &["claude-code", "opencode", "pi"][..]),
            (
                Protocol::OpenaiChat,
                &["opencode", "pi", "qwen-code", "vibe"],
            ),
            (Protocol::Responses, &["codex", "opencode", "pi"]),
            (Protocol::Gemini, &["gemini-cli", "opencode"]),
        ] {
            assert_eq!(usable_harnesses(&one(protocol)), names);
        }
        assert!(usable_harnesses(&BTreeMap::new()).is_empty());
    }
}
