//! A root file system archive becomes an image of one layer.

use super::archive;
use super::http::JsonLines;
use super::pull::error_in;
use super::reference::{split_tag, with_tag};
use super::store::OciImages;
use crate::oci::Flavour;
use handler_engine::images::{ImageError, Lines};
use handler_types::image::ImageConfig;
use http::Method;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Imports; answers the id.
pub(super) async fn run(
    store: &OciImages,
    path: &Path,
    name: Option<&str>,
    config: &ImageConfig,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    archive::check(path).await?;
    let changes = changes(config)?;
    let address = address(store, name, &changes);
    lines.send("importing the archive".to_owned()).await.ok();
    let whole = async {
        let body = archive::body(path).await?;
        let response = store.api.send(Method::POST, &address, body, None).await?;
        let mut answers = JsonLines::new(response);
        let mut id = None;
        while let Some(value) = answers.next().await? {
            if let Some(error) = error_in(&value) {
                return Err(super::http::classify(0, &error));
            }
            let found = value["Id"].as_str().or(value["status"].as_str());
            id = found.filter(|id| id.len() >= 64).map(str::to_owned).or(id);
        }
        id.ok_or_else(|| ImageError::Failed("the engine named no image".to_owned()))
    };
    tokio::select! {
        () = cancel.cancelled() => Err(ImageError::Cancelled),
        done = whole => done,
    }
}

fn address(store: &OciImages, name: Option<&str>, changes: &[String]) -> String {
    let name = name.map(with_tag);
    let mut query: Vec<(&str, &str)> = changes.iter().map(|c| ("changes", c.as_str())).collect();
    match store.api.engine.flavour() {
        Flavour::Podman => {
            query.extend(name.as_deref().map(|name| ("reference", name)));
            store.api.address("/images/import", &query)
        }
        Flavour::Docker => {
            query.push(("fromSrc", "-"));
            if let Some((repo, tag)) = name.as_deref().map(split_tag) {
                query.push(("repo", repo));
                query.push(("tag", tag.unwrap_or("latest")));
            }
            store.api.address("/images/create", &query)
        }
    }
}

/// The configuration as the instructions both engines take.
fn changes(config: &ImageConfig) -> Result<Vec<String>, ImageError> {
    let mut changes = Vec::new();
    for (word, map) in [("ENV", &config.env), ("LABEL", &config.labels)] {
        for (key, value) in map {
            let is_key = !key.is_empty()
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
            if !is_key {
                return Err(ImageError::Invalid(format!(
                    "`{key}` cannot be a name of {word}"
                )));
            }
            changes.push(format!("{word} {key}={}", quoted(value)?));
        }
    }
    if !config.workdir.is_empty() {
        if !config.workdir.starts_with('/') {
            return Err(ImageError::Invalid(
                "the working folder is an absolute path".to_owned(),
            ));
        }
        quoted(&config.workdir)?;
        changes.push(format!("WORKDIR {}", config.workdir));
    }
    Ok(changes)
}

/// The engines read quotes, escapes and variables each in their own way: values have none of them.
fn quoted(value: &str) -> Result<String, ImageError> {
    if value.contains(|c: char| c.is_control() || matches!(c, '"' | '\\' | '$')) {
        return Err(ImageError::Invalid(
            "values of an image's configuration have no control characters, quotes, backslashes or dollar signs"
                .to_owned(),
        ));
    }
    Ok(format!("\"{value}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn values_cannot_become_instructions_of_their_own() {
        let config = ImageConfig {
            env: BTreeMap::from([("A".into(), "x  y=z".into())]),
            workdir: "/w".into(),
            labels: BTreeMap::from([("a.b/c".into(), "v".into())]),
        };
        assert_eq!(
            changes(&config).unwrap(),
            [r#"ENV A="x  y=z""#, r#"LABEL a.b/c="v""#, "WORKDIR /w"]
        );
        let with = |key: &str, value: &str| ImageConfig {
            env: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            ..ImageConfig::default()
        };
        assert!(changes(&with("A", "x\nRUN y")).is_err());
        assert!(changes(&with("A", "x\" B=\"y")).is_err());
        assert!(changes(&with("A", "$HOME")).is_err());
        assert!(changes(&with("A B", "x")).is_err());
        assert!(changes(&with("", "x")).is_err());
    }
}
