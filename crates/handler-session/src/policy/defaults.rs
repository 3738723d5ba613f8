//! P7: the mode and the options every session starts with are set explicitly and verified.
//!
//! A session in a mode other than the one asked for is never handed out: when nothing fits, the start is
//! refused with -32004.

use super::Refusal;
use crate::acp::codes;
use handler_types::harness::SessionDefaults;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One thing to set after `session/new` or `session/load`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefaultStep {
    /// `session/set_mode`.
    Mode {
        /// The mode.
        mode_id: String,
    },
    /// `session/set_config_option`.
    Option {
        /// The option.
        config_id: String,
        /// Its value.
        value: String,
    },
}

/// What to set, given what the agent offers in `opened` (its `session/new` or `session/load` result).
///
/// # Errors
/// P7 (-32004) when no wanted mode is offered.
pub fn plan(defaults: &SessionDefaults, opened: &Value) -> Result<Vec<DefaultStep>, Refusal> {
    let mut steps = Vec::new();
    if !defaults.mode_ids.is_empty() {
        steps.push(mode(&defaults.mode_ids, opened)?);
    }
    for (config_id, value) in &defaults.config_options {
        steps.push(DefaultStep::Option {
            config_id: config_id.clone(),
            value: value.clone(),
        });
    }
    Ok(steps)
}

fn mode(wanted: &[String], opened: &Value) -> Result<DefaultStep, Refusal> {
    let modes: Vec<&str> = list(&opened["modes"]["availableModes"])
        .filter_map(|mode| mode["id"].as_str())
        .collect();
    let option = list(&opened["configOptions"])
        .find(|option| option["category"] == "mode" || option["id"] == "mode");
    let values = option.map(option_values).unwrap_or_default();
    for mode_id in wanted {
        if modes.contains(&mode_id.as_str()) {
            return Ok(DefaultStep::Mode {
                mode_id: mode_id.clone(),
            });
        }
        if let Some(config_id) = option.and_then(|option| option["id"].as_str())
            && values.contains(&mode_id.as_str())
        {
            return Ok(DefaultStep::Option {
                config_id: config_id.to_owned(),
                value: mode_id.clone(),
            });
        }
    }
    let offered = if modes.is_empty() { values } else { modes };
    Err(failed(format!(
        "the agent offers none of the modes {wanted:?}; it offers {offered:?}"
    )))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The values of a select option, grouped or not.
fn option_values(option: &Value) -> Vec<&str> {
    list(&option["options"])
        .flat_map(|entry| match entry.get("options") {
            Some(group) => list(group).collect::<Vec<_>>(),
            None => vec![entry],
        })
        .filter_map(|entry| entry["value"].as_str())
        .collect()
}

/// P7's refusal: a session in another mode than the one asked for is not handed out.
pub(crate) fn failed(message: impl Into<String>) -> Refusal {
    Refusal::by("P7", codes::DEFAULTS_FAILED, message)
}

/// Method and parameters of a step.
#[must_use]
pub fn request(step: &DefaultStep, session: &str) -> (&'static str, Value) {
    match step {
        DefaultStep::Mode { mode_id } => (
            "session/set_mode",
            json!({"sessionId": session, "modeId": mode_id}),
        ),
        DefaultStep::Option { config_id, value } => (
            "session/set_config_option",
            json!({"sessionId": session, "configId": config_id, "value": value}),
        ),
    }
}

/// Takes a step's result into `opened`, after making sure that it says what was asked for.
///
/// # Errors
/// P7 (-32004) when the agent reports another value.
pub fn apply(step: &DefaultStep, result: &Value, opened: &mut Value) -> Result<(), Refusal> {
    match step {
        DefaultStep::Mode { mode_id } => set_mode(opened, mode_id),
        DefaultStep::Option { config_id, value } => {
            if result["configOptions"].is_array() {
                opened["configOptions"] = result["configOptions"].clone();
                let now = list(&opened["configOptions"])
                    .find(|option| option["id"] == config_id.as_str())
                    .map(|option| &option["currentValue"]);
                if now.is_none_or(|now| now != value.as_str()) {
                    return Err(failed(format!(
                        "the agent did not set {config_id} to {value:?}"
                    )));
                }
            } else {
                set_option(opened, config_id, value);
            }
        }
    }
    Ok(())
}

/// Notes the current mode in `opened`.
pub fn set_mode(opened: &mut Value, mode_id: &str) {
    if opened["modes"].is_object() {
        opened["modes"]["currentModeId"] = json!(mode_id);
    }
    if let Some(options) = opened["configOptions"].as_array_mut() {
        for option in options
            .iter_mut()
            .filter(|option| option["category"] == "mode")
        {
            if option_values(option).contains(&mode_id) {
                option["currentValue"] = json!(mode_id);
            }
        }
    }
}

/// Notes an option's value in `opened`.
pub fn set_option(opened: &mut Value, config_id: &str, value: &str) {
    if let Some(options) = opened["configOptions"].as_array_mut() {
        for option in options
            .iter_mut()
            .filter(|option| option["id"] == config_id)
        {
            option["currentValue"] = json!(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claude() -> Value {
        json!({"modes": {"currentModeId": "auto", "availableModes": [{"id": "default"}, {"id": "acceptEdits"}, {"id": "auto"}]},
            "configOptions": [{"id": "mode", "category": "mode", "currentValue": "auto",
                "options": [{"value": "default"}, {"value": "acceptEdits"}, {"value": "auto"}]}]})
    }

    fn opencode() -> Value {
        json!({"configOptions": [
            {"id": "model", "category": "model", "options": [{"value": "build"}]},
            {"id": "mode", "category": "mode", "options": [{"name": "g", "options": [{"value": "build"}, {"value": "plan"}]}]}]})
    }

    #[test]
    fn the_first_offered_mode_is_chosen() {
        let mode = |id: &str| DefaultStep::Mode { mode_id: id.into() };
        let option = |id: &str| DefaultStep::Option {
            config_id: "mode".into(),
            value: id.into(),
        };
        for (opened, wanted, expected) in [
            (claude(), vec!["default"], Some(vec![mode("default")])),
            (
                claude(),
                vec!["bypass", "acceptEdits"],
                Some(vec![mode("acceptEdits")]),
            ),
            (claude(), vec!["bypass"], None),
            (claude(), vec![], Some(vec![])),
            (opencode(), vec!["plan"], Some(vec![option("plan")])),
            (opencode(), vec!["x", "build"], Some(vec![option("build")])),
            (opencode(), vec!["x"], None),
            (json!({}), vec!["x"], None),
            (json!({"modes": 7, "configOptions": "no"}), vec!["x"], None),
        ] {
            let defaults = SessionDefaults {
                mode_ids: wanted.iter().map(ToString::to_string).collect(),
                ..SessionDefaults::default()
            };
            let planned = plan(&defaults, &opened);
            if let Err(refusal) = &planned {
                assert_eq!(
                    (refusal.code, refusal.policy.as_deref()),
                    (-32004, Some("P7"))
                );
            }
            assert_eq!(planned.ok(), expected, "{wanted:?} of {opened}");
        }
    }

    #[test]
    fn options_follow_the_mode_and_are_verified() {
        let defaults = SessionDefaults {
            mode_ids: vec!["default".into()],
            config_options: [("model".to_owned(), "m".to_owned())].into(),
            ..SessionDefaults::default()
        };
        let steps = plan(&defaults, &claude()).expect("plan");
        assert_eq!(steps.len(), 2);
        assert_eq!(
            request(&steps[1], "S"),
            (
                "session/set_config_option",
                json!({"sessionId": "S", "configId": "model", "value": "m"})
            )
        );
        let mut opened = claude();
        let said = |value: &str| json!({"configOptions": [{"id": "model", "currentValue": value}]});
        assert!(apply(&steps[1], &said("other"), &mut opened).is_err());
        assert!(apply(&steps[1], &json!({"configOptions": []}), &mut opened).is_err());
        assert!(apply(&steps[1], &said("m"), &mut opened).is_ok());
        assert!(apply(&steps[1], &json!({}), &mut opened).is_ok());
    }

    #[test]
    fn a_set_mode_shows_in_modes_and_in_the_mode_option() {
        let mut opened = claude();
        apply(
            &DefaultStep::Mode {
                mode_id: "default".into(),
            },
            &json!({}),
            &mut opened,
        )
        .expect("set");
        assert_eq!(opened["modes"]["currentModeId"], "default");
        assert_eq!(opened["configOptions"][0]["currentValue"], "default");
    }
}
