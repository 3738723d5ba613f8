//! Provider templates: vendors' endpoints and a first choice of models, as data of the product.

use handler_types::api::ProviderTemplate;
use handler_types::provider::{Protocol, ProviderModel};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const SOURCE: &str = include_str!("../data/templates.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    templates: Vec<Entry>,
}

/// A template as written: unknown keys are errors, which the wire type must allow.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    description: String,
    endpoints: BTreeMap<Protocol, String>,
    models: Vec<ProviderModel>,
    needs_key: bool,
}

/// All templates, in the order they are offered.
#[must_use]
pub fn templates() -> &'static [ProviderTemplate] {
    static PARSED: OnceLock<Vec<ProviderTemplate>> = OnceLock::new();
    PARSED.get_or_init(|| parse(SOURCE).expect("embedded and parsed by a test"))
}

/// The template of that name.
#[must_use]
pub fn template(name: &str) -> Option<&'static ProviderTemplate> {
    templates().iter().find(|template| template.name == name)
}

fn parse(text: &str) -> Result<Vec<ProviderTemplate>, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    Ok(file
        .templates
        .into_iter()
        .map(|entry| ProviderTemplate {
            name: entry.name,
            description: entry.description,
            endpoints: entry.endpoints,
            models: entry.models,
            needs_key: entry.needs_key,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use std::collections::BTreeSet;

    #[test]
    fn every_template_is_complete_and_its_endpoints_can_be_reached() {
        let mut names = BTreeSet::new();
        for template in templates() {
            assert!(names.insert(&template.name), "{} twice", template.name);
            assert!(!template.endpoints.is_empty(), "{}", template.name);
            assert!(!template.models.is_empty(), "{}", template.name);
            for url in template.endpoints.values() {
                let endpoint = Endpoint::parse(url).unwrap();
                assert_eq!(
                    template.needs_key,
                    url.starts_with("https://"),
                    "{url}: a vendor wants a key, a local server does not"
                );
                assert!(!endpoint.url.ends_with('/'));
            }
            let ids: BTreeSet<_> = template.models.iter().map(|model| &model.id).collect();
            assert_eq!(ids.len(), template.models.len(), "{}", template.name);
        }
        assert!(template("scripted").is_some() && template("nobody").is_none());
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        assert!(parse(&SOURCE.replace("needsKey", "needKey")).is_err());
        assert!(parse(&SOURCE.replace("maxOutput", "maxOut")).is_err());
    }

    #[test]
    fn every_template_serves_some_harness() {
        for template in templates() {
            assert!(
                !crate::usable_harnesses(&template.endpoints).is_empty(),
                "{}",
                template.name
            );
        }
    }
}
