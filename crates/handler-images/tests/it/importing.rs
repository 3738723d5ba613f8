//! Archives: root file systems, and images as other engines save them.

use crate::registry::own_architecture;
use crate::test_tar::Tar;
use crate::world::{World, digest, gzip, zstd};
use handler_engine::images::{BuildPlan, ImageError, ImageStore as _};
use handler_types::image::ImageConfig;
use tokio::sync::mpsc;

fn root_fs() -> Vec<u8> {
    Tar::new()
        .folder("etc")
        .file("etc/passwd", b"root:x:0:0::/:/bin/sh\n")
        .folder("bin")
        .file("bin/sh", b"#!")
        .end()
}

fn image_config(layers: &[Vec<u8>]) -> Vec<u8> {
    let diffs: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let config = serde_json::json!({"architecture": own_architecture(), "os": "linux", "config": {"Env": ["PATH=/saved"]}, "rootfs": {"type": "layers", "diff_ids": diffs}});
    config.to_string().into_bytes()
}

/// As `docker save` writes it, layers first.
fn docker_save(layers: &[Vec<u8>], tags: &[&str]) -> Vec<u8> {
    let config = image_config(layers);
    let mut tar = Tar::new();
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("{number}/layer.tar");
        tar = tar.file(&name, layer);
        names.push(name);
    }
    let manifest =
        serde_json::json!([{"Config": "c.json", "RepoTags": tags, "Layers": names}]).to_string();
    tar.file("c.json", &config)
        .file("manifest.json", manifest.as_bytes())
        .end()
}

/// As an OCI layout is, index first.
fn oci_layout(layers: &[Vec<u8>], spoil: bool) -> Vec<u8> {
    let mut config = image_config(layers);
    let packed: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
    let list: Vec<_> = packed
        .iter()
        .map(|blob| serde_json::json!({"digest": digest(blob), "size": blob.len()}))
        .collect();
    let manifest = serde_json::json!({"schemaVersion": 2, "config": {"digest": digest(&config), "size": config.len()}, "layers": list}).to_string();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{"digest": digest(manifest.as_bytes()), "size": manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": "localhost/made:7"}}]});
    let place = |bytes: &[u8]| digest(bytes).replace("sha256:", "blobs/sha256/");
    let config_place = place(&config);
    if spoil {
        config.push(b' ');
    }
    let mut tar = Tar::new()
        .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
        .file("index.json", index.to_string().as_bytes())
        .file(&place(manifest.as_bytes()), manifest.as_bytes())
        .file(&config_place, &config);
    for blob in &packed {
        tar = tar.file(&place(blob), blob);
    }
    tar.end()
}

#[tokio::test]
async fn a_root_file_system_is_the_same_image_however_it_is_packed() {
    let world = World::new();
    let plain = root_fs();
    let id = world.import(&plain, Some("base:1")).await.expect("plain");
    assert_eq!(
        world
            .import(&gzip(&plain), Some("base:2"))
            .await
            .expect("gzip"),
        id
    );
    assert_eq!(world.import(&zstd(&plain), None).await.expect("zstd"), id);
    let all = world.store.list().await.expect("lists");
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].names, ["base:1", "base:2"]);
    let roots = world.store.take("o", "sb", &[id]).expect("root");
    assert_eq!(
        (roots[0].shell.as_str(), roots[0].passwd.as_str()),
        ("/bin/sh", "root:x:0:0::/:/bin/sh\n")
    );
    assert_eq!(roots[0].layers.len(), 2, "an overlay needs two");
    world.assert_clean();
}

#[tokio::test]
async fn what_other_engines_save_is_taken_with_its_names_and_configuration() {
    let lower = root_fs();
    let upper = Tar::new()
        .raw("etc/.wh.passwd", b'0', 0o644, "", 0, b"")
        .file("new", b"n")
        .end();
    let layers = [lower, upper];
    for archive in [
        docker_save(&layers, &["tool:3"]),
        gzip(&docker_save(&layers, &["tool:3"])),
        oci_layout(&layers, false),
        zstd(&oci_layout(&layers, false)),
    ] {
        let world = World::new();
        let id = world.import(&archive, None).await.expect("imports");
        assert_eq!(id, digest(&image_config(&layers)));
        let (view, config) = world.store.inspect(&id).await.expect("is there");
        assert!(
            view.names == ["tool:3"] || view.names == ["localhost/made:7"],
            "{:?}",
            view.names
        );
        assert_eq!(config.env["PATH"], "/saved");
        assert_eq!(world.names("layers").len(), 2);
        let named = world
            .import(&archive, Some("mine:1"))
            .await
            .expect("imports");
        assert_eq!(named, id);
        assert!(world.store.inspect("mine:1").await.is_ok());
        world.assert_clean();
    }
}

#[tokio::test]
async fn hostile_and_damaged_archives_are_refused_and_leave_nothing() {
    let good = root_fs();
    let layers = [good.clone()];
    let mut lies = docker_save(&layers, &["x"]);
    let at = lies
        .windows(8)
        .position(|w| w == b"root:x:0")
        .expect("content");
    lies[at] = b'R';
    let cut = gzip(&good);
    let several = Tar::new()
        .file(
            "manifest.json",
            br#"[{"Config":"a","Layers":[]},{"Config":"b","Layers":[]}]"#,
        )
        .end();
    let missing = Tar::new()
        .file(
            "manifest.json",
            br#"[{"Config":"../../etc/passwd","Layers":[]}]"#,
        )
        .end();
    let long = Tar::new()
        .raw("manifest.json", b'0', 0o644, "", 1 << 40, b"[")
        .end();
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("noise", vec![7; 5000]),
        ("cut gzip", cut[..cut.len() / 2].to_vec()),
        ("cut tar", good[..good.len() - 1400].to_vec()),
        (
            "leads out",
            Tar::new().folder("etc").file("../x", b"x").end(),
        ),
        ("a layer that lies", lies),
        ("a configuration that lies", oci_layout(&layers, true)),
        ("several", several),
        ("missing parts", missing),
        ("a long manifest", long),
    ];
    for (what, archive) in table {
        let world = World::new();
        let result = world.import(&archive, Some("x")).await;
        assert!(
            matches!(result, Err(ImageError::Invalid(_))),
            "{what}: {result:?}"
        );
        assert_eq!(world.names("layers"), [""; 0], "{what}");
        assert!(
            world.store.list().await.expect("lists").is_empty(),
            "{what}"
        );
        world.assert_clean();
    }
}

#[tokio::test]
async fn a_cancelled_import_leaves_nothing() {
    let world = World::new();
    world.cancel.cancel();
    let result = world.import(&root_fs(), Some("x")).await;
    assert!(matches!(result, Err(ImageError::Cancelled)), "{result:?}");
    assert_eq!(world.names("layers"), [""; 0]);
    world.assert_clean();
}

#[tokio::test]
async fn what_is_no_plain_file_is_refused_at_once() {
    let world = World::new();
    let (lines, _heard) = mpsc::channel(4);
    let config = ImageConfig::default();
    for path in ["/dev/zero", "/proc/nonexistent", "/tmp"] {
        let import = world
            .store
            .import(path.as_ref(), None, &config, &lines, &world.cancel);
        assert!(
            matches!(import.await, Err(ImageError::Invalid(_))),
            "{path}"
        );
    }
    let build = world
        .store
        .build(&BuildPlan::default(), &lines, &world.cancel)
        .await;
    assert!(matches!(build, Err(ImageError::Unsupported(text)) if text.contains("import")));
}
