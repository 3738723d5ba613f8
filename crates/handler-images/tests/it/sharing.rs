//! Names, shared layers, use by sandboxes, and what a crash or a second daemon does.

use crate::test_tar::Tar;
use crate::world::{World, config, names};
use handler_engine::images::{ImageError, ImageStore as _};
use handler_images::Store;

fn archive(mark: &str) -> Vec<u8> {
    Tar::new()
        .folder("etc")
        .file("etc/mark", mark.as_bytes())
        .end()
}

#[tokio::test]
async fn names_move_ids_do_not_and_a_prefix_of_eight_digits_is_enough() {
    let world = World::new();
    let one = world
        .import(&archive("one"), Some("x:1"))
        .await
        .expect("imports");
    let two = world
        .import(&archive("two"), Some("x:2"))
        .await
        .expect("imports");
    world.store.tag("x:1", "y").await.expect("tags");
    world.store.tag(&two, "y").await.expect("takes the name");
    let id_of = async |reference: &str| {
        world
            .store
            .inspect(reference)
            .await
            .map(|(view, _)| view.id)
    };
    assert_eq!(id_of("y:latest").await.expect("found"), two);
    let digits = one.strip_prefix("sha256:").expect("digest");
    for reference in [
        &one,
        digits,
        &digits[..8],
        &one[..15],
        "docker.io/library/x:1",
    ] {
        assert_eq!(id_of(reference).await.expect("found"), one, "{reference}");
    }
    for missing in [&digits[..7], "z", "", "../x", "sha256:"] {
        assert!(
            matches!(id_of(missing).await, Err(ImageError::NotFound(_))),
            "{missing}"
        );
    }
    for crooked in ["", "UPPER", "a b", "x@sha256:1", &format!("x@{one}")] {
        assert!(
            matches!(
                world.store.tag(&one, crooked).await,
                Err(ImageError::Invalid(_))
            ),
            "{crooked}"
        );
    }
}

#[tokio::test]
async fn a_layer_goes_with_the_last_image_that_has_it() {
    let world = World::new();
    let id = world
        .import(&archive("same"), Some("a"))
        .await
        .expect("imports");
    world.store.tag("a", "b").await.expect("tags");
    world.store.remove("a").await.expect("the name goes");
    assert_eq!(
        world.store.inspect(&id).await.expect("still there").0.names,
        ["b:latest"]
    );
    assert_eq!(world.names("layers").len(), 1);
    world.store.remove("b").await.expect("the image goes");
    assert!(matches!(
        world.store.inspect(&id).await,
        Err(ImageError::NotFound(_))
    ));
    assert_eq!(world.names("layers"), [""; 0]);
    assert_eq!(world.names("images"), [""; 0]);
    world.assert_clean();
    assert!(matches!(
        world.store.remove("b").await,
        Err(ImageError::NotFound(_))
    ));
}

#[tokio::test]
async fn what_a_sandbox_uses_stays_until_it_lets_go() {
    let world = World::new();
    let id = world
        .import(&archive("used"), Some("a"))
        .await
        .expect("imports");
    world.store.tag("a", "b").await.expect("tags");
    world
        .store
        .take("owner", "sb1", std::slice::from_ref(&id))
        .expect("taken");
    world.store.remove("a").await.expect("another name is left");
    for reference in ["b", id.as_str()] {
        assert!(
            matches!(world.store.remove(reference).await, Err(ImageError::InUse(text)) if text.contains("sb1"))
        );
    }
    let view = world.store.list().await.expect("lists").remove(0);
    assert_eq!(
        (view.used_by, view.names),
        (vec!["sb1".to_owned()], vec!["b:latest".to_owned()])
    );
    assert_eq!(world.store.sandboxes("owner"), ["sb1"]);
    assert_eq!(world.store.sandboxes("other"), [""; 0]);
    world.store.release("owner", "sb1").expect("released");
    world.store.release("owner", "sb1").expect("twice is fine");
    world.store.remove(&id).await.expect("removed");
    assert!(matches!(
        world.store.take("owner", "sb2", &[id]),
        Err(ImageError::NotFound(_))
    ));
    assert_eq!(
        world.store.sandboxes("owner"),
        [""; 0],
        "nothing is noted for what is not there"
    );
    for crooked in ["", "../x", "a/b", "."] {
        assert!(
            world.store.take(crooked, "sb", &[]).is_err()
                && world.store.take("o", crooked, &[]).is_err()
        );
    }
}

#[tokio::test]
async fn after_a_crash_at_any_step_only_whole_images_are_there() {
    let world = World::new();
    let id = world
        .import(&archive("whole"), Some("a"))
        .await
        .expect("imports");
    let folder = world.folder.path().join("images");
    let layer = names(&folder.join("layers")).remove(0);
    // Half an unpacked layer; a layer that no image was written down for; half a record; a name without an image.
    std::fs::create_dir_all(folder.join("staging/0123/layer/etc")).expect("folder");
    std::fs::create_dir_all(folder.join("layers").join("b".repeat(64)).join("etc"))
        .expect("folder");
    std::fs::create_dir_all(folder.join("layers/odd")).expect("folder");
    std::fs::write(
        folder
            .join("images")
            .join(format!(".{}.json.aa", "c".repeat(64))),
        "{",
    )
    .expect("file");
    let text = std::fs::read_to_string(folder.join("names.json")).expect("names");
    let more = text.replacen(
        '{',
        &format!(
            "{{\"docker.io/library/gone:1\":\"sha256:{}\",",
            "d".repeat(64)
        ),
        1,
    );
    std::fs::write(folder.join("names.json"), more).expect("names");
    let World {
        folder: kept,
        store,
        ..
    } = world;
    drop(store);
    let again = Store::open(config(kept.path())).expect("opens");
    let all = again.list().await.expect("lists");
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].id.as_str(), all[0].names.as_slice()),
        (id.as_str(), ["a:latest".to_owned()].as_slice())
    );
    assert_eq!(names(&folder.join("layers")), [layer]);
    assert_eq!(names(&folder.join("staging")), [""; 0]);
}

#[tokio::test]
async fn a_second_daemon_reads_but_changes_nothing() {
    let world = World::new();
    let id = world
        .import(&archive("one"), Some("a"))
        .await
        .expect("imports");
    std::fs::create_dir_all(world.folder.path().join("images/staging/at-work")).expect("folder");
    let second = Store::open(config(world.folder.path())).expect("opens");
    assert!(second.inspect(&id).await.is_ok());
    assert!(matches!(
        second.remove("a").await,
        Err(ImageError::Unavailable(_))
    ));
    assert!(matches!(
        second.tag("a", "b").await,
        Err(ImageError::Unavailable(_))
    ));
    assert_eq!(
        world.names("staging"),
        ["at-work"],
        "nothing of the first one is swept away"
    );
    let World { folder, store, .. } = world;
    drop(store);
    second.remove("a").await.expect("now it is the only one");
    drop(folder);
}
