//! What the engines say about images, in our words.

use handler_types::image::{ImageConfig, ImageView};
use serde_json::Value;
use std::collections::BTreeMap;

/// An id with its algorithm, as both engines' ids are shown.
pub(super) fn full_id(id: &str) -> String {
    if id.starts_with("sha256:") {
        id.to_owned()
    } else {
        format!("sha256:{id}")
    }
}

/// The hexadecimal part of an id.
pub(super) fn hex(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}

fn names(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    let mut names: Vec<String> = all
        .filter_map(Value::as_str)
        .filter(|name| !name.contains("<none>"))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// An entry of a list.
pub(super) fn listed(backend: &str, value: &Value) -> Option<ImageView> {
    let created = value["Created"].as_i64();
    Some(ImageView {
        backend: backend.to_owned(),
        id: full_id(value["Id"].as_str()?),
        names: names(&value["RepoTags"]),
        size_bytes: value["Size"].as_u64().unwrap_or_default(),
        created_at: created.map(|s| handler_base::clock::rfc3339(s.saturating_mul(1000))),
        platform: platform(&value["Os"], &value["Arch"]),
        config: None,
        used_by: Vec::new(),
    })
}

/// The answer of an inspection.
pub(super) fn inspected(backend: &str, value: &Value) -> Option<(ImageView, ImageConfig)> {
    let config = config(&value["Config"]);
    let view = ImageView {
        backend: backend.to_owned(),
        id: full_id(value["Id"].as_str()?),
        names: names(&value["RepoTags"]),
        size_bytes: value["Size"].as_u64().unwrap_or_default(),
        created_at: value["Created"].as_str().map(str::to_owned),
        platform: platform(&value["Os"], &value["Architecture"]),
        config: Some(config.clone()),
        used_by: Vec::new(),
    };
    Some((view, config))
}

fn platform(os: &Value, arch: &Value) -> Option<String> {
    Some(format!("{}/{}", os.as_str()?, arch.as_str()?)).filter(|p| p.len() > 1)
}

fn config(value: &Value) -> ImageConfig {
    let env = value["Env"].as_array().into_iter().flatten();
    let labels = value["Labels"].as_object().into_iter().flatten();
    ImageConfig {
        env: env
            .filter_map(|entry| entry.as_str()?.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        workdir: value["WorkingDir"].as_str().unwrap_or_default().to_owned(),
        labels: labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect::<BTreeMap<_, _>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_engines_lists_become_the_same() {
        let podman =
            json!({"Id": "ab", "RepoTags": ["localhost/x:1"], "Size": 7, "Created": 1_795_972_791});
        let docker = json!({"Id": "sha256:ab", "RepoTags": ["localhost/x:1", "<none>:<none>"], "Size": 7,
            "Created": 1_795_972_791});
        let view = listed("podman", &podman).unwrap();
        assert_eq!(view.id, "sha256:ab");
        assert_eq!(view.names, ["localhost/x:1"]);
        assert!(
            view.created_at
                .as_deref()
                .unwrap()
                .starts_with("2026-11-29T")
        );
        let other = ImageView {
            backend: "podman".into(),
            ..listed("docker", &docker).unwrap()
        };
        assert_eq!(view, other);
    }

    #[test]
    fn the_configuration_is_read_and_what_is_missing_is_empty() {
        let value = json!({"Id": "ab", "RepoTags": null, "Os": "linux", "Architecture": "amd64", "Size": 1,
            "Config": {"Env": ["A=b=c", "odd"], "WorkingDir": "/w", "Labels": null}});
        let (view, config) = inspected("docker", &value).unwrap();
        assert_eq!(config.env, BTreeMap::from([("A".into(), "b=c".into())]));
        assert_eq!(config.workdir, "/w");
        assert_eq!(view.platform.as_deref(), Some("linux/amd64"));
        assert!(view.names.is_empty());
        assert!(inspected("docker", &json!({"Config": null})).is_none());
    }
}
