//! One container in the engine: made, started, found. Thin over the API; what it says is judged elsewhere.

use super::api::{Flavour, OciUse};
use super::ending::remove;
use super::error::OciError;
use super::info::SECCOMP;
use super::labels;
use super::plan::ContainerPlan;
use super::{render_docker, render_podman};
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder,
    ListContainersOptionsBuilder, LogsOptionsBuilder,
};
use futures::StreamExt;
use handler_types::sandbox::Confinement;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Longest file of an image that is read, in bytes.
const LONGEST_FILE: usize = 1 << 20;
/// Bytes of a container's last words.
const LAST_WORDS: usize = 2000;
/// Longest log that is read, in bytes: more than an engine keeps of ours.
const LONGEST_LOG: usize = 8 << 20;
/// How often a list that failed is asked for again.
const LIST_TRIES: u32 = 10;

/// A container that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) labels: HashMap<String, String>,
    /// Runs or is frozen.
    pub(super) running: bool,
}

impl Found {
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

/// Makes one; answers its id. One of the same name that was made from the same is taken, another is replaced.
pub(super) async fn create(
    engine: &OciUse,
    flavour: Flavour,
    plan: &ContainerPlan,
) -> Result<String, OciError> {
    match create_new(engine, flavour, plan).await {
        // Docker says 409; Podman's own API says 500 with these words before version 5.
        Err(OciError::Refused { status, message })
            if status == 409 || message.contains("already in use") =>
        {
            let there = inspect(engine, &plan.name).await?;
            let id = there.id.unwrap_or_default();
            let labels = there
                .config
                .and_then(|config| config.labels)
                .unwrap_or_default();
            let runs = there.state.and_then(|state| state.running) == Some(true);
            if !runs && labels.get(labels::CONFIG) == plan.labels.get(labels::CONFIG) {
                return Ok(id);
            }
            if labels.get(labels::OWNER) != plan.labels.get(labels::OWNER) {
                return Err(OciError::Refused { status, message });
            }
            remove(engine, &id).await?;
            create_new(engine, flavour, plan).await
        }
        other => other,
    }
}

async fn create_new(
    engine: &OciUse,
    flavour: Flavour,
    plan: &ContainerPlan,
) -> Result<String, OciError> {
    if flavour == Flavour::Podman {
        let body = render_podman::body(plan);
        let _turn = match plan.keep_id {
            true => Some(engine.turn_for_subordinate_ids().await),
            false => None,
        };
        let answer = engine
            .libpod("POST", "/containers/create", Some(&body))
            .await?;
        let id = answer.body.get("Id").and_then(serde_json::Value::as_str);
        return id
            .map(str::to_owned)
            .ok_or_else(|| OciError::Broken("no id was answered".to_owned()));
    }
    let profile = match plan.confinement {
        Confinement::Nested => Some(std::fs::read_to_string(SECCOMP).map_err(|error| {
            OciError::Missing(format!(
                "the profile for containers inside cannot be read ({SECCOMP}): {error}"
            ))
        })?),
        Confinement::Strict | Confinement::Privileged => None,
    };
    let options = CreateContainerOptionsBuilder::new()
        .name(&plan.name)
        .build();
    let body = render_docker::body(plan, profile.as_deref());
    Ok(engine.create_container(Some(options), body).await?.id)
}

/// What an image has at some paths: read from a container that is never started, and removed again.
pub(super) async fn read_image(
    engine: &OciUse,
    image: &str,
    labels: BTreeMap<String, String>,
    paths: [&str; 2],
) -> Result<[Option<String>; 2], OciError> {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec!["/".to_owned()]),
        labels: Some(labels.into_iter().collect()),
        network_disabled: Some(true),
        ..ContainerCreateBody::default()
    };
    let id = engine.create_container(None, body).await?.id;
    let read = [
        read_file(engine, &id, paths[0]).await,
        read_file(engine, &id, paths[1]).await,
    ];
    remove(engine, &id).await?;
    Ok(read)
}

/// Starts one.
pub(super) async fn start(engine: &OciUse, id: &str) -> Result<(), OciError> {
    Ok(engine.start_container(id, None).await?)
}

/// All containers with these labels, ended ones too.
pub(super) async fn list(engine: &OciUse, labels: &[(&str, &str)]) -> Result<Vec<Found>, OciError> {
    let wanted = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let filters: HashMap<&str, Vec<String>> = HashMap::from([("label", wanted)]);
    if engine.flavour() == Flavour::Podman {
        return list_podman(engine, &filters).await;
    }
    let options = || {
        ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build()
    };
    let mut tries = 0;
    let found = loop {
        match engine
            .list_containers(Some(options()))
            .await
            .map_err(OciError::from)
        {
            Ok(found) => break found,
            // Podman gives up when a container, anybody's, vanishes while it makes its list.
            Err(OciError::Refused {
                status: 404 | 500..,
                ..
            }) if tries < LIST_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    Ok(found
        .into_iter()
        .filter_map(|one| {
            use ContainerSummaryStateEnum::{PAUSED, RESTARTING, RUNNING};
            Some(Found {
                id: one.id?,
                labels: one.labels.unwrap_or_default(),
                running: matches!(one.state, Some(RUNNING | PAUSED | RESTARTING)),
            })
        })
        .collect())
}

/// Podman's own list: for a moment after its end a container is in a state that Docker's words do not have, and
/// the client library then refuses the whole list.
async fn list_podman(
    engine: &OciUse,
    filters: &HashMap<&str, Vec<String>>,
) -> Result<Vec<Found>, OciError> {
    let filters = serde_json::to_string(filters).unwrap_or_default();
    let path = format!("/containers/json?all=true&filters={}", in_query(&filters));
    let mut tries = 0;
    let answer = loop {
        match engine.libpod("GET", &path, None).await {
            Ok(answer) => break answer,
            // Podman gives up when a container, anybody's, vanishes while it makes its list.
            Err(OciError::Refused {
                status: 404 | 500..,
                ..
            }) if tries < LIST_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let all = answer.body.as_array().cloned().unwrap_or_default();
    let found = all.iter().filter_map(|one| {
        let labels = one.get("Labels").and_then(|labels| labels.as_object());
        let labels = labels.into_iter().flatten();
        let state = one.get("State").and_then(|state| state.as_str());
        Some(Found {
            id: one.get("Id")?.as_str()?.to_owned(),
            labels: labels
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            running: matches!(
                state,
                Some("running" | "paused" | "restarting" | "stopping")
            ),
        })
    });
    Ok(found.collect())
}

/// A text as the value of a query.
fn in_query(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
        out
    })
}

/// Looks at a container. For a moment after its end Podman calls it `stopped`, a word that Docker's API does not
/// have and the client library does not read.
async fn inspect(engine: &OciUse, name: &str) -> Result<ContainerInspectResponse, OciError> {
    let mut tries = 0;
    loop {
        match engine.inspect_container(name, None).await {
            Err(error) if tries < LIST_TRIES && error.to_string().contains("`stopped`") => {
                tries += 1;
            }
            other => return Ok(other?),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether it runs (a frozen one does), and whether it is frozen.
pub(super) async fn state(engine: &OciUse, id: &str) -> Result<(bool, bool), OciError> {
    let state = inspect(engine, id).await?.state.unwrap_or_default();
    let paused = state.paused == Some(true);
    Ok((state.running == Some(true) || paused, paused))
}

/// The end of what PID 1 said.
pub(super) async fn last_words(engine: &OciUse, id: &str) -> String {
    let options = LogsOptionsBuilder::new()
        .stdout(true)
        .stderr(true)
        .tail("10")
        .build();
    let mut logs = engine.logs(id, Some(options));
    let mut text = String::new();
    while let Some(Ok(piece)) = logs.next().await {
        text.push_str(&String::from_utf8_lossy(&piece.into_bytes()));
        if text.len() > LAST_WORDS {
            break;
        }
    }
    super::error::tidy(&text)
}

/// The last lines of what a container's first process printed, its streams together, oldest first.
pub(super) async fn log(engine: &OciUse, id: &str, lines: usize) -> Result<Vec<String>, OciError> {
    let options = LogsOptionsBuilder::new()
        .stdout(true)
        .stderr(true)
        .tail(&lines.to_string())
        .build();
    let mut pieces = engine.logs(id, Some(options));
    let mut text = Vec::new();
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece?.into_bytes());
        if text.len() > LONGEST_LOG {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().map(str::to_owned).collect())
}

/// A file of a container's root, started or not; none when it is not there or no plain file.
async fn read_file(engine: &OciUse, id: &str, path: &str) -> Option<String> {
    let options = DownloadFromContainerOptionsBuilder::new()
        .path(path)
        .build();
    let mut stream = engine.download_from_container(id, Some(options));
    let mut archive = Vec::new();
    while let Some(piece) = stream.next().await {
        archive.extend_from_slice(&piece.ok()?);
        if archive.len() > LONGEST_FILE {
            return None;
        }
    }
    first_file(&archive)
}

/// The content of the first entry of a tar archive, if that is a plain file.
fn first_file(archive: &[u8]) -> Option<String> {
    const BLOCK: usize = 512;
    let header = archive.get(..BLOCK)?;
    let is_plain = matches!(header.get(156), Some(b'0' | 0));
    let size = std::str::from_utf8(header.get(124..135)?).ok()?;
    let size = usize::from_str_radix(size.trim_matches([' ', '\0']), 8).ok()?;
    let content = archive.get(BLOCK..BLOCK.checked_add(size)?)?;
    is_plain.then(|| String::from_utf8_lossy(content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_of_an_archive_is_read_and_anything_else_nothing() {
        let mut archive = vec![0; 512];
        archive[124..135].copy_from_slice(b"00000000005");
        archive[156] = b'0';
        archive.extend_from_slice(b"a:b\nc");
        assert_eq!(first_file(&archive).as_deref(), Some("a:b\nc"));
        archive[156] = b'2';
        assert_eq!(first_file(&archive), None);
        archive[156] = b'0';
        archive[124..135].copy_from_slice(b"77777777777");
        assert_eq!(first_file(&archive), None);
        assert_eq!(first_file(b"short"), None);
    }
}
