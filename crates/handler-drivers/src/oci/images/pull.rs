//! Pulling: the engine's stream of progress as lines, the id at the end.

use super::http::{JsonLines, classify};
use super::reference::with_tag;
use super::store::OciImages;
use super::text::clean;
use crate::oci::Flavour;
use handler_engine::images::{ImageError, ImageStore as _, Lines};
use http::Method;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Pulls; answers the id. Dropping the connection is what stops the engine.
pub(super) async fn run(
    store: &OciImages,
    reference: &str,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    let whole = async {
        let address = address(store, reference);
        let body = http_body_util::Full::<bytes::Bytes>::default();
        let response = store.api.send(Method::POST, &address, body, None).await?;
        let mut answers = JsonLines::new(response);
        let mut id = None;
        while let Some(value) = answers.next().await? {
            if let Some(error) = error_in(&value) {
                return Err(registry_error(&error));
            }
            if let Some(found) = value["id"].as_str().filter(|_| store.api.is_podman()) {
                id = Some(found.to_owned());
            }
            if let Some(line) = line(&value) {
                lines.send(line).await.ok();
            }
        }
        Ok(id)
    };
    let id = tokio::select! {
        () = cancel.cancelled() => return Err(ImageError::Cancelled),
        done = whole => done?,
    };
    let name = id.unwrap_or_else(|| reference.to_owned());
    Ok(store.inspect(&name).await?.0.id)
}

fn address(store: &OciImages, reference: &str) -> String {
    match store.api.engine.flavour() {
        Flavour::Podman => store
            .api
            .address("/images/pull", &[("reference", reference)]),
        // Without a tag Docker would get them all.
        Flavour::Docker if reference.contains('@') => store
            .api
            .address("/images/create", &[("fromImage", reference)]),
        Flavour::Docker => store
            .api
            .address("/images/create", &[("fromImage", &with_tag(reference))]),
    }
}

/// The error a document of the stream holds.
pub(super) fn error_in(value: &Value) -> Option<String> {
    let text = value["errorDetail"]["message"]
        .as_str()
        .or(value["error"].as_str())?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn registry_error(text: &str) -> ImageError {
    let lower = text.to_lowercase();
    let is_missing = [
        "manifest unknown",
        "not found",
        "does not exist",
        "name unknown",
    ]
    .iter()
    .any(|mark| lower.contains(mark));
    let is_unreachable = [
        "connection refused",
        "no such host",
        "timeout",
        "unreachable",
        "proxyconnect",
    ]
    .iter()
    .any(|mark| lower.contains(mark));
    let text: String = clean(text.trim()).chars().take(2000).collect();
    if is_missing {
        ImageError::Failed(format!("the registry does not have it: {text}"))
    } else if is_unreachable {
        ImageError::Unavailable(format!("the registry cannot be reached: {text}"))
    } else {
        classify(0, &text)
    }
}

/// A line for people: steps, not the ticks of progress bars.
fn line(value: &Value) -> Option<String> {
    if let Some(text) = value["stream"].as_str() {
        return Some(clean(text.trim_end())).filter(|text| !text.trim().is_empty());
    }
    let status = value["status"].as_str()?;
    if value["progressDetail"]["current"].is_number() {
        return None;
    }
    let id = value["id"]
        .as_str()
        .map_or(String::new(), |id| format!("{id}: "));
    Some(clean(&format!("{id}{status}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ticks_of_progress_bars_are_no_lines() {
        let tick = json!({"status": "Downloading", "progressDetail": {"current": 1, "total": 2}, "id": "a"});
        assert_eq!(line(&tick), None);
        let step = json!({"status": "Pull complete", "progressDetail": {}, "id": "a"});
        assert_eq!(line(&step).as_deref(), Some("a: Pull complete"));
        assert_eq!(
            line(&json!({"stream": "Copying blob\n"})).as_deref(),
            Some("Copying blob")
        );
    }

    #[test]
    fn an_error_says_whether_the_registry_was_there() {
        assert!(matches!(
            registry_error("dial tcp: connection refused"),
            ImageError::Unavailable(_)
        ));
        assert!(matches!(
            registry_error("manifest unknown"),
            ImageError::Failed(_)
        ));
    }
}
