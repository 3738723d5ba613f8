//! Pulls from a registry that helps, stumbles, lies or asks who one is.

use crate::registry::Registry;
use crate::test_tar::Tar;
use crate::world::{World, digest, gzip};
use handler_engine::images::{ImageError, ImageStore as _};
use std::time::Duration;

fn layer(name: &str, size: usize) -> Vec<u8> {
    // Not to be packed to nothing, so that it comes in many pieces.
    let noise: Vec<u8> = (0..size)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    Tar::new().file(name, &noise).end()
}

fn three() -> Vec<Vec<u8>> {
    vec![
        layer("one", 300_000),
        layer("two", 200_000),
        layer("three", 1000),
    ]
}

#[tokio::test]
async fn an_image_comes_with_all_its_layers_and_its_name_and_the_second_time_nothing_is_fetched() {
    let (world, registry) = (World::new(), Registry::start().await);
    let id = registry.put_image("1", &three());
    let name = registry.name("tool:1");
    assert_eq!(world.pull(&name).await.expect("pulls"), id);
    world.assert_clean();
    let (view, config) = world.store.inspect(&name).await.expect("is there");
    assert_eq!(
        (view.id.as_str(), view.names.as_slice()),
        (id.as_str(), [name.clone()].as_slice())
    );
    assert_eq!(view.created_at.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(
        (config.workdir.as_str(), config.env["PATH"].as_str()),
        ("/srv", "/bin")
    );
    let roots = world
        .store
        .take("o", "sb1", std::slice::from_ref(&id))
        .expect("roots");
    for (folder, file) in roots[0].layers.iter().zip(["three", "two", "one"]) {
        assert!(
            folder.join(file).is_file(),
            "{file} in {}",
            folder.display()
        );
    }
    let before = registry.asked().len();
    world.pull(&name).await.expect("pulls again");
    let blobs = registry.asked().len() - before;
    assert_eq!(blobs, 1, "only the configuration");
}

#[tokio::test]
async fn a_line_that_breaks_is_gone_on_with_from_there() {
    let (world, registry) = (World::new(), Registry::start().await);
    registry.put_image("1", &three()[..1]);
    registry.ways(|ways| {
        ways.stumbles = 2;
        ways.breaks = 3;
    });
    world.pull(&registry.name("t:1")).await.expect("pulls");
    let ranges: Vec<_> = registry
        .asked()
        .into_iter()
        .filter_map(|(_, range)| range)
        .collect();
    assert!(!ranges.is_empty(), "it went on: {ranges:?}");
    world.assert_clean();
}

#[tokio::test]
async fn a_registry_that_knows_no_ranges_gives_it_from_the_start() {
    let (world, registry) = (World::new(), Registry::start().await);
    registry.put_image("1", &three()[..1]);
    registry.ways(|ways| {
        ways.breaks = 1;
        ways.no_ranges = true;
    });
    world.pull(&registry.name("t:1")).await.expect("pulls");
    world.assert_clean();
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says_is_refused_and_leaves_nothing() {
    let good = layer("good", 1000);
    let other = layer("evil", 1000);
    let world = World::new();
    let registry = Registry::start().await;
    // The packed blob is another one of the same length.
    let packed = gzip(&good);
    let mut wrong = packed.clone();
    *wrong.last_mut().expect("not empty") ^= 1;
    registry.put_blob_as(&digest(&packed), wrong);
    registry.put_manifests("blob", &[digest(&good)], &[(digest(&packed), packed.len())]);
    // The blob is what it says, but not the layer the configuration promises.
    let evil = gzip(&other);
    let length = evil.len();
    let blob = registry.put_blob(evil);
    registry.put_manifests("layer", &[digest(&good)], &[(blob.clone(), length)]);
    // Longer and shorter than the manifest says.
    registry.put_manifests("long", &[digest(&other)], &[(blob.clone(), length - 1)]);
    registry.put_manifests("short", &[digest(&other)], &[(blob.clone(), length + 1)]);
    // A layer more than the configuration knows.
    registry.put_manifests(
        "more",
        &[digest(&other)],
        &[(blob.clone(), length), (blob, length)],
    );
    for tag in ["blob", "layer", "long", "short", "more"] {
        let result = world.pull(&registry.name(&format!("t:{tag}"))).await;
        assert!(
            matches!(
                result,
                Err(ImageError::Failed(_) | ImageError::Invalid(_) | ImageError::Unavailable(_))
            ),
            "{tag}: {result:?}"
        );
        assert_eq!(world.names("layers"), [""; 0], "{tag}");
        assert_eq!(world.names("staging"), [""; 0], "{tag}");
        assert!(world.store.list().await.expect("lists").is_empty(), "{tag}");
    }
}

#[tokio::test]
async fn a_manifest_or_configuration_that_was_changed_is_refused() {
    let (world, registry) = (World::new(), Registry::start().await);
    let id = registry.put_image("1", &three()[..1]);
    registry.put_blob_as(&id, b"{}".to_vec());
    assert!(matches!(
        world.pull(&registry.name("t:1")).await,
        Err(ImageError::Failed(_))
    ));
    let asked = format!("t@{}", digest(b"something"));
    registry.put_manifest(&digest(b"something"), "{}".to_owned());
    assert!(matches!(
        world.pull(&registry.name(&asked)).await,
        Err(ImageError::Failed(_))
    ));
    for crooked in [
        "",
        "[]",
        r#"{"schemaVersion":1}"#,
        r#"{"schemaVersion":2,"manifests":[]}"#,
    ] {
        registry.put_manifest("crooked", crooked.to_owned());
        let result = world.pull(&registry.name("t:crooked")).await;
        assert!(
            matches!(result, Err(ImageError::Invalid(_))),
            "{crooked}: {result:?}"
        );
    }
    let missing = world.pull(&registry.name("t:missing")).await;
    assert!(
        matches!(&missing, Err(ImageError::Invalid(text)) if text.contains("t:missing")),
        "{missing:?}"
    );
}

#[tokio::test]
async fn tokens_are_fetched_for_anybody_or_with_the_login_of_a_file() {
    let registry = Registry::start().await;
    registry.put_image("1", &three());
    let name = registry.name("t:1");
    registry.ways(|ways| ways.token_for = Some(String::new()));
    World::new().pull(&name).await.expect("a token for anybody");
    for is_basic in [false, true] {
        let login = Some("me:s3cret".to_owned());
        registry.ways(|ways| {
            (ways.token_for, ways.basic_for) = if is_basic {
                (None, login)
            } else {
                (login, None)
            };
        });
        let refused = World::new().pull(&name).await;
        let text = refused.expect_err("nobody is let in").to_string();
        assert!(
            text.contains("podman login") && !text.contains("s3cret"),
            "{text}"
        );
        let folder = tempfile::tempdir().expect("temp");
        let file = folder.path().join("auth.json");
        use base64::Engine as _;
        let auth = base64::engine::general_purpose::STANDARD.encode("me:s3cret");
        std::fs::write(
            &file,
            format!(
                r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#,
                registry.host()
            ),
        )
        .expect("writes");
        let world =
            World::with(|config| config.auth_files = vec![folder.path().join("missing"), file]);
        world.pull(&name).await.expect("the login is used");
    }
}

#[tokio::test]
async fn a_cancelled_pull_ends_and_leaves_nothing() {
    let (world, registry) = (World::new(), Registry::start().await);
    let big = vec![0; 64 << 20];
    registry.put_manifests("1", &[digest(b"x")], &[(digest(&big), 1 << 33)]);
    registry.put_blob_as(&digest(&big), big);
    registry.ways(|_| {});
    let name = registry.name("t:1");
    let config_is_fetched = async {
        while registry.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        registry.ways(|ways| ways.endless = true);
        while registry.asked().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.cancel.cancel();
    };
    let pull = tokio::time::timeout(Duration::from_secs(60), world.pull(&name));
    let (done, ()) = tokio::join!(pull, config_is_fetched);
    assert!(matches!(done.expect("it ends"), Err(ImageError::Cancelled)));
    world.assert_clean();
    assert_eq!(world.names("layers"), [""; 0]);
}

#[tokio::test]
async fn two_pulls_at_once_share_the_work_of_a_layer() {
    let (world, registry) = (World::new(), Registry::start().await);
    let layers = three();
    registry.put_image("1", &layers);
    registry.put_image("2", &layers[..2]);
    let (one, two) = (registry.name("t:1"), registry.name("t:2"));
    let (a, b) = tokio::join!(world.pull(&one), world.pull(&two));
    a.expect("pulls");
    b.expect("pulls");
    let mut blobs: Vec<String> = registry
        .asked()
        .into_iter()
        .map(|(digest, _)| digest)
        .collect();
    let all = blobs.len();
    blobs.sort();
    blobs.dedup();
    assert_eq!(
        (all, blobs.len()),
        (5, 5),
        "each blob once: three layers, two configurations"
    );
    assert_eq!(world.names("layers").len(), 3);
    world.assert_clean();
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("address").port();
    drop(listener);
    let gone = World::new().pull(&format!("localhost:{port}/t:1")).await;
    assert!(
        matches!(&gone, Err(ImageError::Unavailable(text)) if text.contains("localhost")),
        "{gone:?}"
    );
}
