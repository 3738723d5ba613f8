//! Names of images: `[host[:port]/]repository[:tag][@digest]`, with the defaults everybody is used to.

use crate::digest::Digest;

/// Where names without a host are looked for.
const DEFAULT_HOST: &str = "docker.io";
/// Where its API is.
const DEFAULT_API: &str = "registry-1.docker.io";

/// A name, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// `host[:port]`.
    pub(crate) host: String,
    /// e.g. `library/debian`.
    pub(crate) repository: String,
    /// The tag, `latest` when neither tag nor digest is said.
    pub(crate) tag: Option<String>,
    /// The manifest's digest.
    pub(crate) digest: Option<Digest>,
}

impl Name {
    /// Reads a name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{}` is no image name: {why}", shown(text));
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::try_from(digest.to_owned()).map_err(|why| wrong(&why))?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        // A colon after the last slash starts the tag; one before belongs to a port.
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong(
                "a tag is letters, digits, `_`, `.` and `-`, at most 128",
            ));
        }
        let (host, repository) = split_host(path);
        if !is_host(&host) {
            return Err(wrong("the registry is no host with an optional port"));
        }
        if !is_repository(&repository) {
            return Err(wrong(
                "a repository is lower-case letters, digits and `.`, `_`, `-` between `/`",
            ));
        }
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, None) => Some("latest".to_owned()),
            (None, Some(_)) => None,
        };
        Ok(Self {
            host,
            repository,
            tag,
            digest,
        })
    }

    /// The one spelling under which it is stored; a digest is no name.
    pub(crate) fn stored(&self) -> Option<String> {
        let tag = self.tag.as_deref()?;
        Some(format!("{}/{}:{tag}", self.host, self.repository))
    }

    /// Host and port of the registry's API.
    pub(crate) fn api(&self) -> &str {
        if self.host == DEFAULT_HOST {
            DEFAULT_API
        } else {
            &self.host
        }
    }

    /// What the manifest is asked for by.
    pub(crate) fn manifest(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }
}

/// A stored name as people know it: without the default host.
pub(crate) fn familiar(stored: &str) -> &str {
    let default = stored
        .strip_prefix(DEFAULT_HOST)
        .and_then(|rest| rest.strip_prefix('/'));
    match default {
        Some(rest) => rest.strip_prefix("library/").unwrap_or(rest),
        None => stored,
    }
}

fn split_host(path: &str) -> (String, String) {
    let default = |rest: &str| {
        let official = if rest.contains('/') { "" } else { "library/" };
        (DEFAULT_HOST.to_owned(), format!("{official}{rest}"))
    };
    match path.split_once('/') {
        Some(("docker.io" | "index.docker.io", rest)) => default(rest),
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
            (host.to_ascii_lowercase(), rest.to_owned())
        }
        _ => default(path),
    }
}

fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    let starts = |c: char| c.is_ascii_alphanumeric() || c == '[';
    host.starts_with(starts) && host.len() <= 255 && host.bytes().all(plain)
}

fn is_tag(tag: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&tag.len()) && tag.bytes().all(plain) && !tag.starts_with(['.', '-'])
}

fn is_repository(repository: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let is_part = |part: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        part.bytes().all(plain) && ends(part.as_bytes().first()) && ends(part.as_bytes().last())
    };
    repository.len() <= 255 && repository.split('/').all(is_part)
}

/// For an error: bounded, without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in_and_left_out_again() {
        let table = [
            ("debian", "docker.io/library/debian:latest", "debian:latest"),
            ("debian:13", "docker.io/library/debian:13", "debian:13"),
            ("me/tool", "docker.io/me/tool:latest", "me/tool:latest"),
            (
                "docker.io/debian",
                "docker.io/library/debian:latest",
                "debian:latest",
            ),
            ("localhost/x:1", "localhost/x:1", "localhost/x:1"),
            (
                "localhost:5000/a/b",
                "localhost:5000/a/b:latest",
                "localhost:5000/a/b:latest",
            ),
            (
                "Example.org/a",
                "example.org/a:latest",
                "example.org/a:latest",
            ),
        ];
        for (text, stored, short) in table {
            let name = Name::parse(text).expect(text);
            assert_eq!(name.stored().as_deref(), Some(stored));
            assert_eq!(familiar(stored), short);
        }
        let digest = format!("debian@sha256:{}", "a".repeat(64));
        let name = Name::parse(&digest).expect("parses");
        assert_eq!(name.stored(), None);
        assert!(name.manifest().starts_with("sha256:"));
    }

    #[test]
    fn crooked_names_are_refused() {
        for text in [
            "",
            ":",
            "a:",
            "A",
            "a//b",
            "../a",
            "a/../b",
            "a b",
            "a:t/x y",
            "-a",
            "a@sha256:1",
            "a\0",
            "a:-x",
            "h.x/",
            "/a",
            "a?b",
            "a#b",
            "h.x:y@z/a",
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }
}
