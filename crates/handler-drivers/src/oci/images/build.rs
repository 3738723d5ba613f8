//! Builds: checks that count for both engines, and Docker's own builder over its API.
//!
//! Docker's classic builder keeps an image for each step. With `no_cache` they are of no use to a later build:
//! when such a build fails or is cancelled, the ones it made go again.

use super::archive;
use super::http::{JsonLines, classify};
use super::podman_build;
use super::pull::error_in;
use super::store::{OciImages, check_name};
use super::text::LineCutter;
use super::view::full_id;
use crate::oci::Flavour;
use handler_engine::images::{BuildPlan, ImageError, ImageStore as _, Lines};
use http::Method;
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the builder may hold on to what it was told to let go.
const LET_GO: Duration = Duration::from_secs(20);

/// Builds; answers the id.
pub(super) async fn run(
    store: &OciImages,
    plan: &BuildPlan,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    check(plan)?;
    archive::check(&plan.context).await?;
    match store.api.engine.flavour() {
        Flavour::Podman => podman_build::run(plan, lines, cancel).await,
        Flavour::Docker => docker(store, plan, lines, cancel).await,
    }
}

fn check(plan: &BuildPlan) -> Result<(), ImageError> {
    plan.tags.iter().try_for_each(|tag| check_name(tag))?;
    let is_recipe = !plan.containerfile.is_empty()
        && !plan.containerfile.starts_with(['/', '-'])
        && !plan.containerfile.contains(char::is_control)
        && plan.containerfile.split('/').all(|part| part != "..");
    if !is_recipe {
        return Err(ImageError::Invalid(
            "the recipe is a path inside the context, e.g. Containerfile".to_owned(),
        ));
    }
    let names = plan.args.keys().chain(plan.proxy.keys());
    for name in names {
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(ImageError::Invalid(format!(
                "`{name}` cannot be a build argument"
            )));
        }
    }
    let is_plain =
        |name: &String| !name.is_empty() && name != ".." && name != "." && !name.contains('/');
    if !plan.lent.keys().all(is_plain) {
        return Err(ImageError::Invalid(
            "a lent file has a plain name".to_owned(),
        ));
    }
    let all = plan
        .args
        .values()
        .chain(plan.labels.keys())
        .chain(plan.labels.values());
    if all.into_iter().any(|text| text.contains(char::is_control)) {
        return Err(ImageError::Invalid(
            "build arguments and labels have no control characters".to_owned(),
        ));
    }
    Ok(())
}

async fn docker(
    store: &OciImages,
    plan: &BuildPlan,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<String, ImageError> {
    if plan.ca_bundle.is_some() || !plan.lent.is_empty() {
        return Err(ImageError::Unsupported(
            "Docker's builder cannot be lent certificates or npm settings without leaving them in the image: build \
             with Podman and bring the image over (`podman save NAME | docker load`), or leave caBundle and \
             npmRegistry out of images.toml"
                .to_owned(),
        ));
    }
    let address = docker_address(store, plan);
    let mut steps = Steps::default();
    let whole = async {
        let body = archive::body(&plan.context).await?;
        let response = store.api.send(Method::POST, &address, body, None).await?;
        follow(JsonLines::new(response), lines, &mut steps).await
    };
    let done = tokio::select! {
        () = cancel.cancelled() => Err(ImageError::Cancelled),
        done = whole => done,
    };
    if done.is_err() && plan.no_cache {
        remove_steps(store, &steps.made).await;
    }
    done
}

fn docker_address(store: &OciImages, plan: &BuildPlan) -> String {
    let mut args = plan.args.clone();
    // Known to the builder by name: they are in no layer and no history.
    args.extend(plan.proxy.clone());
    let args = serde_json::to_string(&args).expect("a map of texts is JSON");
    let labels = serde_json::to_string(&plan.labels).expect("a map of texts is JSON");
    let yes_no = |flag: bool| if flag { "1" } else { "0" };
    let mut query = vec![
        ("dockerfile", plan.containerfile.as_str()),
        ("buildargs", args.as_str()),
        ("labels", labels.as_str()),
        ("rm", "1"),
        ("forcerm", "1"),
        ("nocache", yes_no(plan.no_cache)),
        ("pull", yes_no(plan.pull)),
    ];
    query.extend(plan.tags.iter().map(|tag| ("t", tag.as_str())));
    store.api.address("/build", &query)
}

async fn follow(
    mut answers: JsonLines,
    lines: &Lines,
    steps: &mut Steps,
) -> Result<String, ImageError> {
    let mut cutter = LineCutter::default();
    let mut id = None;
    while let Some(value) = answers.next().await? {
        if let Some(error) = error_in(&value) {
            return Err(classify(0, &error));
        }
        if let Some(found) = value["aux"]["ID"].as_str() {
            id = Some(full_id(found));
        }
        for line in cutter.push(text_of(&value).as_bytes()) {
            steps.see(&line);
            lines.send(line).await.ok();
        }
    }
    id.ok_or_else(|| ImageError::Failed("the build named no image".to_owned()))
}

fn text_of(value: &Value) -> String {
    if let Some(text) = value["stream"].as_str() {
        return text.to_owned();
    }
    // The base image's pull.
    match value["status"].as_str() {
        Some(status) if !value["progressDetail"]["current"].is_number() => format!("{status}\n"),
        _ => String::new(),
    }
}

/// Images of steps that this build made, as its log tells.
#[derive(Debug, Default)]
struct Steps {
    made: Vec<String>,
    is_fresh: bool,
}

impl Steps {
    fn see(&mut self, line: &str) {
        if line.starts_with("Step ") {
            // The first step is the base image, which is nobody's to remove.
            self.is_fresh = !line.contains(" : FROM ");
        } else if line.contains("Using cache") {
            self.is_fresh = false;
        } else if let Some(id) = line.trim_start().strip_prefix("---> ") {
            let is_id = id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit());
            if is_id && self.is_fresh {
                self.made.push(id.to_owned());
            }
        }
    }
}

async fn remove_steps(store: &OciImages, made: &[String]) {
    let deadline = tokio::time::Instant::now() + LET_GO;
    // Each is the child of the one before.
    for id in made.iter().rev() {
        loop {
            match store.remove(id).await {
                Ok(()) | Err(ImageError::NotFound(_)) => break,
                // The builder ends its container a moment after it was told.
                Err(ImageError::InUse(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, image = id, "a step of a build that did not end stays");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn only_steps_that_this_build_made_are_its_own() {
        let mut steps = Steps::default();
        for line in [
            "Step 1/4 : FROM debian:13",
            " ---> 0123456789ab",
            "Step 2/4 : RUN a",
            " ---> Using cache",
            " ---> 1123456789ab",
            "Step 3/4 : RUN b",
            " ---> Running in aaaaaaaaaaaa",
            "Removing intermediate container aaaaaaaaaaaa",
            " ---> 2123456789ab",
        ] {
            steps.see(line);
        }
        assert_eq!(steps.made, ["2123456789ab"]);
    }

    #[test]
    fn what_cannot_be_a_build_is_refused() {
        let good = BuildPlan {
            containerfile: "sub/Containerfile".into(),
            args: BTreeMap::from([("A_1".into(), "x y".into())]),
            ..BuildPlan::default()
        };
        check(&good).unwrap();
        for change in [
            |p: &mut BuildPlan| p.containerfile = "../Containerfile".into(),
            |p: &mut BuildPlan| p.containerfile = "/etc/passwd".into(),
            |p: &mut BuildPlan| p.containerfile = "-v".into(),
            |p: &mut BuildPlan| p.tags = vec!["--x".into()],
            |p: &mut BuildPlan| p.args = BTreeMap::from([("A=B".into(), String::new())]),
            |p: &mut BuildPlan| p.labels = BTreeMap::from([("a".into(), "x\ny".into())]),
        ] {
            let mut plan = good.clone();
            change(&mut plan);
            assert!(
                matches!(check(&plan), Err(ImageError::Invalid(_))),
                "{plan:?}"
            );
        }
    }
}
