//! The form of the data files: programs of a harness, and the rules of its screen.

use handler_types::observe::Activity;
use regex::Regex;
use serde::{Deserialize, Deserializer};

/// One harness.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Harness {
    /// Its name, as sessions know it.
    pub(crate) harness: String,
    /// Its product's name.
    pub(crate) product: String,
    /// Its programs.
    pub(crate) programs: Programs,
    /// Its screen.
    pub(crate) screen: ScreenRules,
}

/// How a harness's processes are recognised.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Programs {
    /// Programs that are its installation, looked for on the `PATH` in this order.
    pub(crate) path: Vec<String>,
    /// Names of its processes: what the kernel calls them, or the program's file.
    pub(crate) names: Vec<String>,
    /// Scripts an interpreter is given: a file name, or the end of a path; endings of scripts are left out.
    pub(crate) scripts: Vec<String>,
    /// Names or scripts of these that speak the Agent Client Protocol.
    #[serde(default)]
    pub(crate) acp: Vec<String>,
    /// Arguments that make its program speak it.
    #[serde(default)]
    pub(crate) acp_args: Vec<String>,
    /// First arguments that make its program a mere helper of another one.
    #[serde(default)]
    pub(crate) helper_args: Vec<String>,
    /// Names of mere helpers.
    #[serde(default)]
    pub(crate) helper_names: Vec<String>,
}

/// How a harness's screen is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScreenRules {
    /// Titles that are its own.
    #[serde(default)]
    pub(crate) titles: Vec<Pattern>,
    /// Rows that are its own: by them it is recognised when nobody says which program it is.
    pub(crate) marks: Vec<Pattern>,
    /// The last such row begins what follows every state: input box, hints, figures.
    pub(crate) input: Pattern,
    /// Above it, the last such row begins the present turn; none: nothing tells turns apart.
    #[serde(default)]
    pub(crate) turn: Option<Pattern>,
    /// The row that begins a turn is itself looked at.
    #[serde(default)]
    pub(crate) turn_includes_mark: bool,
    /// Rows that say nothing: greeting, tips.
    #[serde(default)]
    pub(crate) banner: Vec<Pattern>,
    /// The first that fits decides.
    pub(crate) rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name.
    pub(crate) name: String,
    /// What it says.
    pub(crate) state: Activity,
    /// Where it looks.
    pub(crate) zone: Zone,
    /// A row there that fits.
    pub(crate) pattern: Pattern,
    /// It counts only while something changed within so many milliseconds.
    #[serde(default)]
    pub(crate) quiet_below_ms: Option<u64>,
}

/// Where a rule looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Zone {
    /// The whole screen.
    Screen,
    /// The last rows that say something.
    Bottom,
    /// The present turn.
    Turn,
    /// The last paragraph of it.
    Paragraph,
    /// The input box and what is below.
    Chrome,
}

/// Rules for programs that are no known harness.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellRules {
    /// Questions on the last row.
    pub(crate) questions: Vec<Question>,
    /// What a shell's prompt looks like.
    pub(crate) prompt: Prompt,
}

/// A question a program asks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// Its name.
    pub(crate) name: String,
    /// The row.
    pub(crate) pattern: Pattern,
}

/// A shell's prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prompt {
    /// The row.
    pub(crate) pattern: Pattern,
}

/// An expression, compiled when read.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Whether a row fits.
    pub(crate) fn fits(&self, row: &str) -> bool {
        self.0.is_match(row)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Regex::new(&text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}
