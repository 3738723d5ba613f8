//! Contexts (contract D.19): what projects are for, and which accounts and providers are made for that.
//!
//! The rule is a guard against the wrong account, not a wall: a project with a context runs only what is made for it
//! or for any; a project without one, and an agent outside projects, run any.

use serde::{Deserialize, Serialize};

/// The word for every context; no context has this name.
pub const ANY: &str = "any";

/// A context's colour in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ContextColor {
    /// Blue.
    Blue,
    /// Violet.
    Violet,
    /// Cyan.
    Cyan,
    /// Pink.
    Pink,
    /// Slate.
    Slate,
}

impl ContextColor {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Violet => "violet",
            Self::Cyan => "cyan",
            Self::Pink => "pink",
            Self::Slate => "slate",
        }
    }

    /// All of them, in the order they are given out.
    pub const ALL: [Self; 5] = [
        Self::Blue,
        Self::Violet,
        Self::Cyan,
        Self::Pink,
        Self::Slate,
    ];
}

/// `POST /v1/contexts` and `PUT /v1/contexts/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRequest {
    /// 1 to 32 letters, digits, spaces, `-` and `_`; not `any`. Cannot change.
    pub name: String,
    /// Its colour.
    pub color: ContextColor,
}

/// A context as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ContextView {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub color: ContextColor,
    /// The projects in it, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<String>,
    /// The accounts made for it, without those for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// The providers made for it, without those for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
}

/// Whether `name` can be a context's: 1 to 32 letters, digits, spaces, `-` and `_`, no space at its ends, not `any`.
#[must_use]
pub fn is_context_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    (1..=32).contains(&name.chars().count())
        && name.trim() == name
        && name.chars().all(is_fine)
        && !name.eq_ignore_ascii_case(ANY)
}

/// Whether what is made for `contexts` may be used where the context is `here` (none: a project without one, or
/// outside projects).
#[must_use]
pub fn may_use(here: Option<&str>, contexts: &[String]) -> bool {
    here.is_none_or(|here| contexts.iter().any(|own| own == here || own == ANY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_with_a_context_runs_what_is_made_for_it_or_for_any() {
        let made = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for (here, contexts, may) in [
            (None, made(&[]), true),
            (None, made(&["Work"]), true),
            (Some("Work"), made(&["Work"]), true),
            (Some("Work"), made(&["Home", "Work"]), true),
            (Some("Work"), made(&["any"]), true),
            (Some("Work"), made(&["Home"]), false),
            (Some("Work"), made(&["work"]), false),
            (Some("Work"), made(&[]), false),
        ] {
            assert_eq!(may_use(here, &contexts), may, "{here:?} {contexts:?}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["Work", "Client 2", "a-b_c", "Büro", &"x".repeat(32)] {
            assert!(is_context_name(good), "{good}");
        }
        for bad in [
            "",
            " a",
            "a ",
            "any",
            "Any",
            "a/b",
            "a\n",
            "a.b",
            &"x".repeat(33),
        ] {
            assert!(!is_context_name(bad), "{bad:?}");
        }
    }
}
