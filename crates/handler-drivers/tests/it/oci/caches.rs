//! Folders that many sandboxes write to (contract A.9): files of the ids inside them are counted and removed. What
//! refuses while a sandbox has one is the daemon's, and is tried there.

use super::world::worlds;
use handler_drivers::oci::Flavour;
use handler_engine::driver::Driver as _;
use handler_engine::shared_folder;
use std::path::Path;
use std::process::Command;

/// A megabyte of an id inside, in folders that it closed to everybody else.
const INNER: &str = "mkdir -p closed/in && dd if=/dev/zero of=closed/in/blob bs=1024 count=1024 2>/dev/null \
    && ln -s /etc/passwd closed/link && chown -R 1234:1234 closed && chmod 700 closed/in && chmod 700 closed";

fn as_inner_id(folder: &Path, is_root: bool) -> bool {
    let mut command = Command::new(if is_root { "sh" } else { "podman" });
    if !is_root {
        command.args(["unshare", "sh"]);
    }
    let status = command.args(["-c", INNER]).current_dir(folder).status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn sizes_count_inner_ids_files_and_clear_removes_them() {
    let is_root = rustix::process::geteuid().is_root();
    for world in worlds() {
        if !is_root && world.engine.flavour != Flavour::Podman {
            continue;
        }
        let folder = world.dir("cache");
        assert!(as_inner_id(&folder, is_root), "files of an inner id");
        std::fs::write(folder.join("own"), "x").expect("own file");
        if !is_root {
            let error = shared_folder::size(&[], &folder).await;
            assert!(error.is_err(), "an ordinary user cannot look into it");
        }
        let size = world.driver.folder_size(&folder).await.expect("measured");
        assert!((1 << 20..1 << 22).contains(&size), "{size}");
        world.driver.empty_folder(&folder).await.expect("emptied");
        assert_eq!(std::fs::read_dir(&folder).expect("it stays").count(), 0);
        assert!(Path::new("/etc/passwd").exists());
    }
}
