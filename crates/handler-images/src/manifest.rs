//! Manifests and indexes of images, OCI's and Docker's: what of them counts.

use crate::config::{MAX_LAYERS, architecture};
use crate::digest::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Longest manifest or index, bytes.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// Longest packed layer, bytes.
pub(crate) const MAX_BLOB: u64 = 64 << 30;

/// Media types that are asked for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// A reference to content.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    #[serde(default)]
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// The name an index gives it.
    pub(crate) fn name(&self) -> Option<&str> {
        let keys = [
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        ];
        keys.iter()
            .find_map(|key| self.annotations.get(*key))
            .map(String::as_str)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// One image.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageManifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// Several, for different machines.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    manifests: Vec<Descriptor>,
}

/// What a registry or archive answers.
#[derive(Debug)]
pub(crate) enum Manifest {
    Image(ImageManifest),
    Index(Index),
}

/// Reads a manifest or index, whichever it is by its fields.
pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest, String> {
    let crooked = |error: serde_json::Error| format!("the manifest cannot be read: {error}");
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(crooked)?;
    if value
        .get("schemaVersion")
        .and_then(serde_json::Value::as_u64)
        == Some(1)
    {
        return Err("the image is in Docker's first format, which is not supported".to_owned());
    }
    if value.get("manifests").is_some() {
        return Ok(Manifest::Index(
            serde_json::from_value(value).map_err(crooked)?,
        ));
    }
    let image: ImageManifest = serde_json::from_value(value).map_err(crooked)?;
    if image.layers.is_empty() || image.layers.len() > MAX_LAYERS {
        return Err(format!("an image has 1 to {MAX_LAYERS} layers"));
    }
    if let Some(big) = image.layers.iter().find(|layer| layer.size > MAX_BLOB) {
        return Err(format!(
            "layer {} is too big: {} bytes",
            big.digest, big.size
        ));
    }
    Ok(Manifest::Image(image))
}

impl Index {
    /// The manifest for this machine; one without a platform counts when it is the only one.
    pub(crate) fn choose(&self) -> Result<&Descriptor, String> {
        let fits = |descriptor: &&Descriptor| {
            descriptor.platform.as_ref().is_some_and(|platform| {
                platform.os == "linux" && platform.architecture == architecture()
            })
        };
        let plain = |descriptor: &&Descriptor| {
            let platform = descriptor.platform.as_ref();
            platform
                .and_then(|platform| platform.variant.as_deref())
                .is_none_or(|v| v == "v8")
        };
        let fitting: Vec<&Descriptor> = self.manifests.iter().filter(fits).collect();
        if let Some(chosen) = fitting
            .iter()
            .copied()
            .find(plain)
            .or(fitting.first().copied())
        {
            return Ok(chosen);
        }
        match self.manifests.as_slice() {
            [only] if only.platform.is_none() => Ok(only),
            all => {
                let names = all.iter().filter_map(|d| d.platform.as_ref());
                let names = names.map(|p| format!("{}/{}", p.os, p.architecture));
                let names: Vec<String> = names.take(20).collect();
                Err(format!(
                    "the image is not made for linux/{}; there is: {}",
                    architecture(),
                    names.join(", ")
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(platforms: &[(&str, &str)]) -> Index {
        let one = |(number, (os, arch)): (usize, &(&str, &str))| {
            format!(
                r#"{{"digest":"sha256:{}","size":1,"platform":{{"os":"{os}","architecture":"{arch}"}}}}"#,
                format!("{number:x}").repeat(64)
            )
        };
        let all: Vec<String> = platforms.iter().enumerate().map(one).collect();
        let text = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, all.join(","));
        match parse(text.as_bytes()).expect("parses") {
            Manifest::Index(index) => index,
            Manifest::Image(_) => panic!("no index"),
        }
    }

    #[test]
    fn this_machines_platform_is_chosen_and_others_are_named() {
        let own = architecture();
        let some = index(&[("linux", "s390x"), ("linux", own), ("windows", own)]);
        assert!(some.choose().expect("chosen").digest.hex().starts_with('1'));
        let none = index(&[("linux", "s390x"), ("unknown", "unknown")]);
        assert!(
            none.choose()
                .expect_err("nothing fits")
                .contains("linux/s390x")
        );
    }

    #[test]
    fn crooked_manifests_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"schemaVersion":1,"name":"x"}"#,
            r#"{"config":{"digest":"sha256:../../x"},"layers":[]}"#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
