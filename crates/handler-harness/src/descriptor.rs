//! The harnesses Handler knows: one `data/<name>/harness.toml` each, part of the program.
//!
//! Parsing is strict (an unknown key is an error); a test parses every file, so at run time it cannot fail.

use crate::nearest::nearest;
use handler_types::harness::HarnessDescriptor;
use handler_types::provider::Protocol;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const SOURCES: [(&str, &str); 2] = [
    (
        "claude-code",
        include_str!("../data/claude-code/harness.toml"),
    ),
    ("pi", include_str!("../data/pi/harness.toml")),
];

/// The `apiVersion` of a descriptor.
const DESCRIPTOR_VERSION: &str = "handler.harness/v1";

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
    let harness: HarnessDescriptor = toml::from_str(text).map_err(|error| error.to_string())?;
    let per_session = harness
        .state_slots
        .values()
        .filter(|slot| slot.per_session)
        .count();
    let problem = if harness.api_version != DESCRIPTOR_VERSION {
        Some("apiVersion")
    } else if harness.name != name {
        Some("name")
    } else if harness.acp_command.is_empty() || harness.install.check.is_empty() {
        Some("acpCommand and install.check need a program")
    } else if harness.install.manager != "npm" || harness.install.version_packages.is_empty() {
        Some("install")
    } else if !harness.home.starts_with('/') || harness.home.ends_with('/') {
        Some("home")
    } else if harness.permissions.is_empty() || harness.provider_protocols.is_empty() {
        Some("permissions and providerProtocols need an entry")
    } else if per_session > 1 {
        Some("at most one state slot is perSession")
    } else if !harness
        .state_slots
        .values()
        .all(|s| s.target.starts_with("~/"))
    {
        Some("a state slot's target starts with ~/")
    } else {
        None
    };
    match problem {
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
        assert_eq!(names, ["claude-code", "pi"]);
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let text = SOURCES[1].1.replace("minNode", "minimumNode");
        assert!(parse("pi", &text).unwrap_err().contains("minimumNode"));
        let text = format!("colour = \"red\"\n{}", SOURCES[1].1);
        assert!(parse("pi", &text).unwrap_err().contains("colour"));
    }

    #[test]
    fn what_the_type_cannot_say_is_checked() {
        let good = SOURCES[1].1;
        for (from, to) in [
            ("handler.harness/v1", "handler.harness/v2"),
            ("[\"pi-acp\"]\nhome", "[]\nhome"),
            ("\"npm\"", "\"pip\""),
            ("\"/home/agent\"", "\"home\""),
            ("\"~/.pi/agent/sessions\"", "\"/etc\""),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            assert!(parse("pi", &bad).is_err(), "{from}");
        }
        assert!(parse("other", good).is_err());
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
            "there is no harness `emacs`; known: claude-code, pi"
        );
    }

    #[test]
    fn a_provider_is_usable_where_a_protocol_fits() {
        let one = |protocol| BTreeMap::from([(protocol, "http://127.0.0.1:1".to_owned())]);
        assert_eq!(
            usable_harnesses(&one(Protocol::Anthropic)),
            ["claude-code", "pi"]
        );
        assert_eq!(usable_harnesses(&one(Protocol::OpenaiChat)), ["pi"]);
        assert!(usable_harnesses(&one(Protocol::Gemini)).is_empty());
    }
}
