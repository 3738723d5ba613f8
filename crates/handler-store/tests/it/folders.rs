//! Work folders in a real tree with links in it.

use handler_store::Layout;
use handler_store::folders::{FolderError, WorkFolders};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

struct World {
    dir: tempfile::TempDir,
    folders: WorkFolders,
}

impl World {
    fn path(&self, rest: &str) -> PathBuf {
        std::fs::canonicalize(self.dir.path())
            .expect("canonical")
            .join(rest)
    }

    fn check(&self, rest: &str) -> Result<PathBuf, FolderError> {
        self.folders.check(&self.path(rest))
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("home/.config/handler/folders.toml"), text).expect("write");
    }
}

fn world() -> World {
    let dir = tempfile::tempdir().expect("temp folder");
    let base = dir.path();
    for folder in [
        "home/.config/handler",
        "home/.ssh",
        "home/.dotfiles/vim",
        "home/code/web/.git",
        "home/handler-state/sandboxes",
        "srv/games",
        "srv/games-old",
    ] {
        std::fs::create_dir_all(base.join(folder)).expect("folder");
    }
    std::fs::write(base.join("home/code/file"), "").expect("file");
    symlink("/etc", base.join("home/code/etc")).expect("link");
    symlink(base.join("home/.ssh"), base.join("home/code/keys")).expect("link");
    symlink(base.join("home/code/web"), base.join("srv/web")).expect("link");
    symlink(base.join("home"), base.join("home-link")).expect("link");
    let layout = Layout {
        config: base.join("home/.config/handler"),
        state: base.join("home/handler-state"),
        data: base.join("home/.local/share/handler"),
        cache: base.join("home/.cache/handler"),
        runtime: base.join("run"),
    };
    // The home as the environment has it is a link.
    let folders = WorkFolders::of(&layout, base.join("home-link"));
    World { dir, folders }
}

#[test]
fn without_a_file_the_home_is_open_but_for_itself_and_what_is_hidden() {
    let world = world();
    for good in ["home/code", "home/code/web", "home/code/web/.git"] {
        assert_eq!(world.check(good).expect(good), world.path(good));
    }
    // Through links: what counts is where they lead, and that is what is given back.
    assert_eq!(
        world.check("srv/web").expect("leads into the home"),
        world.path("home/code/web")
    );
    assert_eq!(
        world.check("home/code/../code/web").expect("dots"),
        world.path("home/code/web")
    );
    let refused = |rest: &str| world.check(rest).expect_err(rest).to_string();
    assert!(refused("home").contains("whole home"));
    assert!(refused("home-link").contains("whole home"));
    assert!(refused("").contains("whole home"));
    assert!(refused("home/.ssh").contains("hidden"));
    assert!(refused("home/.dotfiles/vim").contains("handler folder add"));
    assert!(refused("home/code/keys").contains("hidden"));
    assert!(refused("home/code/etc").contains("folder of the system"));
    assert!(refused("home/handler-state").contains("Handler itself"));
    assert!(refused("home/handler-state/sandboxes").contains("Handler itself"));
    assert!(refused("srv/games").contains("handler folder add"));
    assert!(refused("home/none").contains("does not exist"));
    assert!(refused("home/code/file").contains("not a folder"));
    assert!(refused("home/code/file/x").contains("not a folder"));
    for never in ["/", "/usr", "/etc", "/proc/self", "/tmp"] {
        let error = world.folders.check(Path::new(never)).expect_err(never);
        assert!(
            matches!(error, FolderError::Refused { .. }),
            "{never}: {error}"
        );
    }
    let error = world
        .folders
        .check(Path::new("code"))
        .expect_err("relative");
    assert!(matches!(error, FolderError::NotAbsolute { .. }), "{error}");
}

#[test]
fn roots_of_the_file_count_and_nothing_else() {
    let world = world();
    let games = world.path("srv/games");
    world.write(&format!(
        "roots = [\"~/code\", \"{}\", \"/\", \"/none\"]\n",
        games.display()
    ));
    world.check("home/code").expect("a root itself");
    world.check("home/code/web").expect("below a root");
    world.check("srv/games").expect("a root itself");
    let outside = |rest: &str| matches!(world.check(rest), Err(FolderError::Refused { .. }));
    // `/` as a root is no key to the system, the home or Handler's folders.
    for never in ["home", "home/handler-state", "home/.config", ""] {
        assert!(outside(never), "{never}");
    }
    assert!(world.folders.check(Path::new("/etc")).is_err());
    world.write(&format!("roots = [\"{}\"]\n", games.display()));
    for rest in ["home/code", "srv/games-old", "srv"] {
        let error = world.check(rest).expect_err(rest);
        assert!(matches!(error, FolderError::Outside { .. }), "{error}");
    }
    world.write("roots = [\"~/.dotfiles\", \"~\"]\n");
    world.check("home/.dotfiles").expect("named though hidden");
    world.check("home/.ssh").expect_err("still hidden");
    world.write("roots = []\n");
    world.check("home/code").expect_err("nothing is allowed");
    world.write("root = [\"~/code\"]\n");
    let error = world.check("home/code").expect_err("wrong file");
    assert!(
        error.to_string().contains("did you mean `roots`?"),
        "{error}"
    );
}

#[test]
fn roots_are_added_and_removed_and_the_default_stays() {
    let world = world();
    let folders = &world.folders;
    let written = || -> Vec<String> {
        let roots = folders.list().expect("list");
        roots.into_iter().map(|root| root.written).collect()
    };
    assert_eq!(written(), ["~"]);
    let games = world.path("srv/games");
    assert_eq!(folders.add(&games).expect("add"), games);
    folders.add(&games).expect("add again");
    folders.add(Path::new("~/.dotfiles")).expect("add hidden");
    let games_text = games.display().to_string();
    assert_eq!(written(), ["~", &games_text, "~/.dotfiles"]);
    world.check("srv/games").expect("added");
    world.check("home/code").expect("the default stays");
    world.check("home/.dotfiles/vim").expect("added");

    for never in ["/", "/usr", "/tmp"] {
        assert!(folders.add(Path::new(never)).is_err(), "{never}");
    }
    for rest in [
        "home/none",
        "home/code/file",
        "home/handler-state",
        "home/.config",
    ] {
        assert!(folders.add(&world.path(rest)).is_err(), "{rest}");
    }
    assert!(folders.add(Path::new("code")).is_err());

    assert!(
        folders
            .remove(&world.path("home/.dotfiles"))
            .expect("remove")
    );
    assert!(folders.remove(Path::new("~")).expect("remove"));
    assert!(!folders.remove(Path::new("~")).expect("gone"));
    assert_eq!(written(), [games_text]);
    world.check("home/code").expect_err("no longer");
    // A root whose folder is gone can still be taken out.
    std::fs::remove_dir(&games).expect("remove");
    assert_eq!(folders.list().expect("list")[0].path, None);
    assert!(folders.remove(&games).expect("remove"));
    assert!(written().is_empty());
    folders.add(Path::new("~")).expect("the home again");
    world.check("home/code").expect("allowed again");
    assert!(world.check("home").is_err());
}
