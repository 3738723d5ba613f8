//! Whether what is said of an agent can be (contract E1, D.8): everything that is wrong, told at once.
//!
//! What is let through names its harnesses and models, lists entries sorted and once, and folders by their
//! canonical path. Things that may be mended outside (a program not installed, a secret without a value) are no
//! refusal: the agent says them as its `problem`.

use crate::app::agent::{ModelUse, would_run};
use crate::app::sandboxes::work_folder;
use crate::app::{contexts, harnesses};
use crate::http::problem::{ApiError, chain};
use crate::state::App;
use handler_store::secrets::check_path;
use handler_types::ProblemCode;
use handler_types::agent::{AgentSettings, MAX_INSTRUCTIONS, MAX_MODELS, ModelAccess};
use handler_types::harness::{HarnessDescriptor, PermissionMode};
use handler_types::network::NetworkPolicy;
use handler_types::provider::Provider;
use handler_types::sandbox::MountSpec;

/// Most entries of a list.
const MOST_ENTRIES: usize = 10_000;
/// Most secrets, and most folders.
const MOST_THINGS: usize = 100;
/// Longest turn and idle time, seconds: a week.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<(ProblemCode, &'static str, String)>);

impl Problems {
    /// Notes one, under the title of contract D.
    pub(crate) fn add(&mut self, title: &'static str, text: impl Into<String>) {
        self.0.push((ProblemCode::Invalid, title, text.into()));
    }

    /// Notes one that another thing stands against (409).
    fn conflict(&mut self, title: &'static str, text: impl Into<String>) {
        self.0.push((ProblemCode::Conflict, title, text.into()));
    }

    fn refused(&mut self, title: &'static str, what: &str, error: &ApiError) {
        let text = format!("{what}: {}", error.0.detail);
        self.0.push((error.0.code, title, text));
    }

    /// All of them as one refusal, which has the code and the title of the first.
    ///
    /// # Errors
    /// When there is one.
    pub(crate) fn none(self) -> Result<(), ApiError> {
        let Some((code, title, _)) = self.0.first().cloned() else {
            return Ok(());
        };
        let texts: Vec<String> = self.0.into_iter().map(|(_, _, text)| text).collect();
        let mut error = ApiError::titled(code, title, texts.join("; "));
        error.0.reasons = texts;
        Err(error)
    }
}

/// Where an agent is at home.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home<'a> {
    /// In a project; else outside.
    pub(super) is_project: bool,
    /// The project's context.
    pub(super) context: Option<&'a str>,
}

/// The settings as they are kept; what is wrong goes to `problems`.
pub(super) async fn settings(
    app: &App,
    mut asked: AgentSettings,
    home: Home<'_>,
    problems: &mut Problems,
) -> AgentSettings {
    words(&mut asked, home.is_project, problems);
    asked.models = models(app, &asked, home, problems);
    network(&mut asked.network, problems);
    secrets(&asked, problems);
    asked.folders = folders(app, &asked.folders, problems);
    asked.knowledge = knowledge(app, &asked.knowledge, problems).await;
    limits(&asked, problems);
    if let Some(backend) = &asked.backend
        && !app.engine.drivers().iter().any(|d| d.backend() == backend)
    {
        problems.add(
            "invalid request",
            format!("there is no backend `{backend}`"),
        );
    }
    if let Some(scope) = &asked.scope {
        if home.is_project {
            let text = "scope: it works in its project's folder and has none of its own";
            problems.add("given by its project", text);
        } else {
            match work_folder(app, scope) {
                Ok(found) => asked.scope = Some(found),
                Err(error) => problems.refused("scope not allowed", "scope", &error),
            }
        }
    }
    asked
}

/// A name for people: 1 to 100 characters, on one line, and no `/`, which parts a project from its agent.
pub(crate) fn is_name(name: &str) -> bool {
    let length = name.chars().count();
    let is_fine = |c: char| !c.is_control() && c != '/';
    (1..=100).contains(&length) && name.trim() == name && name.chars().all(is_fine)
}

/// Checks a name and a description.
pub(crate) fn named(name: Option<&str>, description: Option<&str>, problems: &mut Problems) {
    if name.is_some_and(|name| !is_name(name)) {
        let text =
            "name: 1 to 100 characters without `/` and control characters, no space at its ends";
        problems.add("invalid request", text);
    }
    if description.is_some_and(|text| text.chars().count() > 500) {
        problems.add("invalid request", "description: at most 500 characters");
    }
}

fn words(asked: &mut AgentSettings, is_in_project: bool, problems: &mut Problems) {
    if is_in_project && asked.name.as_deref().unwrap_or_default().is_empty() {
        let text = "name: say the agent's goal, e.g. `Review`";
        problems.add("name required", text);
    } else {
        named(asked.name.as_deref(), None, problems);
    }
    named(None, asked.description.as_deref(), problems);
    asked.instructions = asked
        .instructions
        .take()
        .filter(|text| !text.trim().is_empty());
    let length = asked.instructions.as_ref().map(|text| text.chars().count());
    if length.is_some_and(|length| length > MAX_INSTRUCTIONS) {
        let text = format!("instructions: at most {MAX_INSTRUCTIONS} characters");
        problems.add("instructions invalid", text);
    }
}

const MODEL_TITLE: &str = "model access unusable";

fn models(
    app: &App,
    asked: &AgentSettings,
    home: Home<'_>,
    problems: &mut Problems,
) -> Vec<ModelAccess> {
    if asked.models.is_empty() || asked.models.len() > MAX_MODELS {
        let text = format!("models: 1 to {MAX_MODELS}, e.g. {{\"provider\": \"anthropic\"}}");
        problems.add(MODEL_TITLE, text);
    }
    let mut found: Vec<ModelAccess> = Vec::new();
    for (at, access) in asked.models.iter().take(MAX_MODELS).enumerate() {
        match model(app, access, asked.permissions, home.context) {
            Ok(access) if found.contains(&access) => {
                let text = format!("models[{at}]: it is there twice");
                problems.add(MODEL_TITLE, text);
            }
            Ok(access) => found.push(access),
            Err((title, text)) if title == contexts::NOT_FOR_IT => {
                problems.conflict(title, format!("models[{at}]: {text}"));
            }
            Err((title, text)) => problems.add(title, format!("models[{at}]: {text}")),
        }
    }
    found
}

/// One model with what was left out: what E1 asks for, tried on the launch itself, and what D.19 does.
pub(super) fn model(
    app: &App,
    access: &ModelAccess,
    permissions: PermissionMode,
    context: Option<&str>,
) -> Result<ModelAccess, (&'static str, String)> {
    let refused = |text: String| (MODEL_TITLE, text);
    let through = access
        .through()
        .ok_or_else(|| refused("name an account or a provider, and not both".to_owned()))?;
    let asked = access.model.clone().unwrap_or_default();
    let used = ModelUse::of(app, through, &asked).map_err(|e| refused(e.0.detail))?;
    let descriptor = program(app, access, &used, permissions).map_err(refused)?;
    let first = match &used {
        ModelUse::Provider { provider, .. } => provider.models.first(),
        ModelUse::Account { .. } => None,
    };
    let model = access
        .model
        .clone()
        .filter(|model| !model.is_empty())
        .or_else(|| first.map(|model| model.id.clone()));
    let used = ModelUse::of(app, through, model.as_deref().unwrap_or_default());
    let used = used.map_err(|e| refused(e.0.detail))?;
    would_run(descriptor, &used, permissions).map_err(|error| {
        let title = match error {
            handler_harness::RenderError::Permission { .. } => "permission mode not offered",
            _ => MODEL_TITLE,
        };
        (title, chain(&error))
    })?;
    contexts::check(context, &used).map_err(|e| (contexts::NOT_FOR_IT, e.0.detail))?;
    Ok(ModelAccess {
        harness: Some(descriptor.name.clone()),
        account: access.account.clone(),
        provider: access.provider.clone(),
        model,
    })
}

/// The program: an account's own; with a provider the one that is named, else a usual one.
fn program(
    app: &App,
    access: &ModelAccess,
    used: &ModelUse<'_>,
    permissions: PermissionMode,
) -> Result<&'static HarnessDescriptor, String> {
    let named = |name: &str| harnesses::descriptor(name).map_err(|e| e.0.detail);
    match (used, &access.harness) {
        (ModelUse::Account { name, account, .. }, Some(harness)) if *harness != account.harness => {
            let own = &account.harness;
            Err(format!(
                "account `{name}` is one of {own}, not of {harness}"
            ))
        }
        (ModelUse::Account { account, .. }, _) => named(&account.harness),
        (_, Some(harness)) => named(harness),
        (ModelUse::Provider { name, provider, .. }, None) => {
            usual(app, name, provider, permissions)
        }
    }
}

/// The program when none is named: the first of the catalogue that fits and is installed, else the first that fits.
fn usual(
    app: &App,
    name: &str,
    provider: &Provider,
    permissions: PermissionMode,
) -> Result<&'static HarnessDescriptor, String> {
    let fitting: Vec<&'static HarnessDescriptor> =
        handler_harness::usable_harnesses(&provider.endpoints)
            .iter()
            .filter_map(|name| handler_harness::descriptor(name))
            .filter(|known| known.permissions.contains_key(&permissions))
            .collect();
    let installed = fitting
        .iter()
        .find(|known| harnesses::installed(app, known).is_ok());
    let found = installed.or(fitting.first()).copied();
    found.ok_or_else(|| {
        format!("no agent program speaks a protocol of provider `{name}` and has these permissions")
    })
}

fn network(policy: &mut NetworkPolicy, problems: &mut Problems) {
    if let NetworkPolicy::Filtered { allow, .. } = policy {
        allow.sort_by_cached_key(ToString::to_string);
        allow.dedup();
        if allow.len() > MOST_ENTRIES {
            let text = format!("network: a list has at most {MOST_ENTRIES} entries");
            problems.add("invalid request", text);
        }
    }
}

fn secrets(asked: &AgentSettings, problems: &mut Problems) {
    const TITLE: &str = "invalid request";
    if asked.secrets.len() > MOST_THINGS {
        problems.add(TITLE, format!("secrets: at most {MOST_THINGS}"));
    }
    for (variable, grant) in &asked.secrets {
        let is_variable = variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && variable.len() <= 100
            && variable
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let shown: String = variable.chars().take(100).collect();
        if !is_variable {
            let text = format!("secrets: `{shown}` is no name of a variable");
            problems.add(TITLE, text);
        }
        if let Err(error) = check_path(&grant.secret) {
            problems.add(TITLE, format!("secrets.{shown}: {error}"));
        }
        if grant.hosts.is_empty() {
            let text = format!("secrets.{shown}: name at least one host it is given to");
            problems.add(TITLE, text);
        }
    }
}

fn folders(app: &App, asked: &[MountSpec], problems: &mut Problems) -> Vec<MountSpec> {
    if asked.len() > MOST_THINGS {
        let text = format!("folders: at most {MOST_THINGS}");
        problems.add("invalid request", text);
    }
    let mut found: Vec<MountSpec> = Vec::new();
    for (at, folder) in asked.iter().take(MOST_THINGS).enumerate() {
        let what = format!("folders[{at}]");
        let is_plain = folder.target.starts_with('/')
            && folder.target.len() > 1
            && folder.target[1..]
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."))
            && !folder.target.contains('\0');
        if !is_plain || found.iter().any(|other| other.target == folder.target) {
            let text = format!(
                "{what}: the target is an absolute path without `.` and `..`, and no other's"
            );
            problems.add("invalid request", text);
        }
        match work_folder(app, &folder.source) {
            Ok(source) => found.push(MountSpec {
                source,
                ..folder.clone()
            }),
            Err(error) => problems.refused("scope not allowed", &what, &error),
        }
    }
    found
}

async fn knowledge(app: &App, asked: &[String], problems: &mut Problems) -> Vec<String> {
    if asked.len() > MOST_THINGS {
        let text = format!("knowledge: at most {MOST_THINGS} folders");
        problems.add("knowledge unusable", text);
        return Vec::new();
    }
    match crate::app::knowledge::check(app, asked).await {
        Ok(found) => found.into_iter().map(|chosen| chosen.relative).collect(),
        Err(error) => {
            problems.refused("knowledge unusable", "knowledge", &error);
            Vec::new()
        }
    }
}

fn limits(asked: &AgentSettings, problems: &mut Problems) {
    let limits = &asked.limits;
    let mut wrong = |is_wrong: bool, text: &str| {
        if is_wrong {
            problems.add("invalid request", text);
        }
    };
    let is_less = |value: Option<u64>, least| value.is_some_and(|value| value < least);
    wrong(
        is_less(limits.memory_mib, 16),
        "limits.memoryMib: at least 16",
    );
    wrong(is_less(limits.pids, 8), "limits.pids: at least 8");
    let is_cpus = |cpus: f64| cpus.is_finite() && cpus >= 0.05;
    wrong(
        limits.cpus.is_some_and(|cpus| !is_cpus(cpus)),
        "limits.cpus: at least 0.05",
    );
    for (value, name) in [
        (asked.turn_timeout_secs, "turnTimeoutSecs"),
        (asked.idle_timeout_secs, "idleTimeoutSecs"),
    ] {
        let is_wrong = value.is_some_and(|value| !(1..=MOST_SECONDS).contains(&value));
        wrong(is_wrong, &format!("{name}: 1 to {MOST_SECONDS}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_for_people_and_leave_the_slash_to_us() {
        for good in ["Dev", "ünï 2", &"x".repeat(100)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", " a", "a ", "a/b", "a\nb", "\u{7}", &"x".repeat(101)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn everything_wrong_is_told_in_one_refusal_with_the_first_title() {
        let mut problems = Problems::default();
        let asked = AgentSettings {
            description: Some("d".repeat(501)),
            instructions: Some("i".repeat(MAX_INSTRUCTIONS + 1)),
            turn_timeout_secs: Some(0),
            idle_timeout_secs: Some(MOST_SECONDS + 1),
            secrets: serde_json::from_value(serde_json::json!({
                "1A": {"secret": "../x", "hosts": []},
            }))
            .expect("secrets"),
            limits: serde_json::from_value(serde_json::json!({
                "memoryMib": 15, "cpus": 0.01, "pids": 7,
            }))
            .expect("limits"),
            ..AgentSettings::default()
        };
        let mut kept = asked.clone();
        words(&mut kept, true, &mut problems);
        secrets(&asked, &mut problems);
        limits(&asked, &mut problems);
        let error = problems.none().expect_err("wrong").0;
        assert_eq!((error.status, error.title.as_str()), (400, "name required"));
        let named = [
            "name:",
            "description:",
            "instructions:",
            "no name of a variable",
            "secrets.1A: not a secret path",
            "secrets.1A: name at least one host",
            "memoryMib",
            "pids",
            "cpus",
            "turnTimeoutSecs",
            "idleTimeoutSecs",
        ];
        assert_eq!(error.reasons.len(), named.len(), "{:#?}", error.reasons);
        for (problem, name) in error.reasons.iter().zip(named) {
            assert!(problem.contains(name), "{name}: {problem}");
        }
        assert!(Problems::default().none().is_ok());
    }

    #[test]
    fn a_list_is_kept_sorted_and_once() {
        let entry = |text: &str| text.parse().expect("entry");
        let mut policy = NetworkPolicy::Filtered {
            allow: vec![
                entry("b.example:1"),
                entry("A.example:1"),
                entry("b.example:1"),
            ],
            enforcement: Default::default(),
        };
        network(&mut policy, &mut Problems::default());
        let NetworkPolicy::Filtered { allow, .. } = policy else {
            panic!("{policy:?}");
        };
        assert_eq!(allow, [entry("a.example:1"), entry("b.example:1")]);
    }
}
