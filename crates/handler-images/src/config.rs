//! The OCI image configuration: what of it counts, and how one is made for an imported archive.

use crate::digest::Digest;
use handler_types::image::ImageConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest configuration, bytes.
pub(crate) const MAX_CONFIG: u64 = 8 << 20;
/// Most layers of an image; overlayfs takes 500.
pub(crate) const MAX_LAYERS: usize = 200;
/// Most environment variables and labels.
const MAX_ENTRIES: usize = 4096;

/// The configuration as it is stored in a registry; unknown fields are none of our business.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct OciConfig {
    pub(crate) architecture: String,
    pub(crate) os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    #[serde(default)]
    config: Option<Inner>,
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Inner {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize, Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    diff_ids: Vec<Digest>,
}

impl OciConfig {
    /// Reads one.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("the image's configuration cannot be read: {error}"))?;
        if config.os != "linux" {
            return Err(format!("the image is for {:?}, not for linux", config.os));
        }
        let own = architecture();
        if config.architecture != own {
            return Err(format!(
                "the image is for {:?}; this machine is {own}",
                config.architecture
            ));
        }
        if config.rootfs.diff_ids.is_empty() || config.rootfs.diff_ids.len() > MAX_LAYERS {
            return Err(format!("an image has 1 to {MAX_LAYERS} layers"));
        }
        Ok(config)
    }

    /// For a root file system of one layer, made here.
    pub(crate) fn for_layer(layer: &Digest, config: &ImageConfig) -> Self {
        let env = config
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        Self {
            architecture: architecture().to_owned(),
            os: "linux".to_owned(),
            created: None,
            config: Some(Inner {
                env: Some(env.collect()),
                working_dir: Some(config.workdir.clone()),
                labels: Some(config.labels.clone()),
            }),
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: vec![layer.clone()],
            },
        }
    }

    /// Digests of the plain layers, the lowest first.
    pub(crate) fn layers(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }

    /// `os/architecture`.
    pub(crate) fn platform(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }

    /// What counts when a sandbox starts; what cannot be a variable or a folder is left out.
    pub(crate) fn summary(&self) -> ImageConfig {
        let Some(inner) = &self.config else {
            return ImageConfig::default();
        };
        let env = inner.env.iter().flatten().take(MAX_ENTRIES);
        let is_plain = |text: &str| !text.contains('\0');
        let workdir = inner.working_dir.clone().unwrap_or_default();
        ImageConfig {
            env: env
                .filter(|line| is_plain(line))
                .filter_map(|line| line.split_once('='))
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            workdir: if workdir.starts_with('/') && is_plain(&workdir) {
                workdir
            } else {
                String::new()
            },
            labels: inner
                .labels
                .iter()
                .flatten()
                .take(MAX_ENTRIES)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        }
    }
}

/// This machine's architecture as images call it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_left_out_and_what_is_for_others_refused() {
        let id = format!("sha256:{}", "a".repeat(64));
        let text = |os: &str, arch: &str| {
            format!(
                r#"{{"os":"{os}","architecture":"{arch}","config":{{"Env":["PATH=/bin","A=b=c","=x","none"],"WorkingDir":"srv","Labels":{{"l":"1"}}}},"rootfs":{{"type":"layers","diff_ids":["{id}"]}}}}"#
            )
        };
        let config = OciConfig::parse(text("linux", architecture()).as_bytes()).expect("parses");
        let summary = config.summary();
        assert_eq!(summary.env.len(), 2);
        assert_eq!(summary.env["A"], "b=c");
        assert_eq!(summary.workdir, "");
        assert_eq!(summary.labels["l"], "1");
        assert!(OciConfig::parse(text("windows", architecture()).as_bytes()).is_err());
        assert!(OciConfig::parse(text("linux", "riscv64").as_bytes()).is_err());
        assert!(OciConfig::parse(b"{}").is_err());
    }
}
