//! Knowledge folders: what may be given, what is shown, and what never leaves the root (contract D.5, K1 to K5).

use handler_store::folders::WorkFolders;
use handler_store::knowledge::{Knowledge, KnowledgeError};
use handler_types::knowledge::{KnowledgeSource, MAX_NOTE};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

struct Place {
    _temp: tempfile::TempDir,
    top: PathBuf,
    root: PathBuf,
}

fn place() -> Place {
    let temp = tempfile::tempdir().expect("temp");
    let top = temp.path().canonicalize().expect("path");
    let root = top.join("home/knowledge");
    for folder in [
        "rust/async/deep/deeper",
        "go",
        "_drafts",
        ".git",
        "other/go",
    ] {
        std::fs::create_dir_all(root.join(folder)).expect("folder");
    }
    std::fs::create_dir_all(top.join("home/.config/handler")).expect("own");
    Place {
        _temp: temp,
        top,
        root,
    }
}

fn knowledge(place: &Place, given: Option<PathBuf>) -> Knowledge {
    let home = place.top.join("home");
    let own = home.join(".config/handler");
    let folders = WorkFolders::new(own.join("folders.toml"), home.clone(), vec![own.clone()]);
    Knowledge::new(own.join("knowledge.toml"), home, given, folders)
}

fn kept(knowledge: &Knowledge, asked: &[&str]) -> Vec<String> {
    let asked: Vec<String> = asked.iter().map(|&text| text.to_owned()).collect();
    let found = knowledge.check(&asked).expect("may be given");
    found.into_iter().map(|chosen| chosen.relative).collect()
}

fn refused(knowledge: &Knowledge, asked: &[&str], words: &str) {
    let asked: Vec<String> = asked.iter().map(|&text| text.to_owned()).collect();
    let error = knowledge.check(&asked).expect_err("refused");
    assert!(matches!(error, KnowledgeError::Unusable(_)), "{error:?}");
    assert!(error.to_string().contains(words), "{asked:?}: {error}");
}

#[test]
fn folders_are_kept_relative_canonical_sorted_and_once() {
    let place = place();
    let knowledge = knowledge(&place, None);
    symlink("rust/async", place.root.join("link")).expect("link");
    symlink(place.root.join("go"), place.root.join("absolute")).expect("link");
    let absolute = place.root.join("go");
    let absolute = absolute.to_str().expect("text");
    assert_eq!(
        kept(&knowledge, &["rust/", "./go", absolute, "absolute"]),
        ["go", "rust"]
    );
    assert_eq!(kept(&knowledge, &["link"]), ["rust/async"]);
    assert_eq!(kept(&knowledge, &["."]), ["."]);
    let all = knowledge.check(&[".".to_owned()]).expect("root");
    assert_eq!(all[0].name, "knowledge");
    assert_eq!(kept(&knowledge, &[]), Vec::<String>::new());
}

#[test]
fn what_leads_out_is_hidden_or_clashes_is_refused() {
    let place = place();
    let known = knowledge(&place, None);
    symlink(&place.top, place.root.join("out")).expect("link");
    symlink(".git", place.root.join("git")).expect("link");
    std::fs::write(place.root.join("note.md"), "x").expect("note");
    refused(&known, &["out"], "leads out");
    refused(&known, &["/usr"], "leads out");
    refused(&known, &["../knowledge/go"], "hidden part");
    refused(&known, &[".git"], "hidden part");
    refused(&known, &["git"], "hidden part");
    refused(&known, &["nothing"], "does not exist");
    refused(&known, &["note.md"], "is not a folder");
    refused(&known, &["go\0"], "zero byte");
    refused(&known, &["rust", "rust/async"], "one lies in the other");
    refused(&known, &[".", "go"], "one lies in the other");
    refused(&known, &["go", "other/go"], "/knowledge/go");
    let both = known.check(&[".git".to_owned(), "nothing".to_owned()]);
    let both = both.expect_err("refused").to_string();
    assert!(both.contains("hidden") && both.contains("exist"), "{both}");
    // A root around Handler's own folders gives none of them.
    let wide = knowledge(&place, Some(place.top.join("home")));
    refused(&wide, &["."], "whole home");
    assert_eq!(kept(&wide, &["knowledge/go"]), ["knowledge/go"]);
}

#[test]
fn the_root_is_the_environments_the_files_or_the_usual_one() {
    let place = place();
    let known = knowledge(&place, None);
    assert_eq!(
        known.root().expect("root"),
        (place.root.clone(), KnowledgeSource::Default)
    );
    let other = place.top.join("notes");
    let text = other.to_str().expect("text");
    let error = known.set_root(Some(text), false).expect_err("missing");
    assert!(error.to_string().contains("does not exist"), "{error}");
    known.set_root(Some(text), true).expect("made");
    assert_eq!(
        known.root().expect("root"),
        (other.clone(), KnowledgeSource::Config)
    );
    // Folders stay relative: they follow.
    refused(&known, &["go"], "does not exist");
    std::fs::create_dir(other.join("go")).expect("folder");
    let found = known.check(&["go".to_owned()]).expect("follows");
    assert_eq!(found[0].path, other.join("go"));
    let home = place.top.join("home");
    let own = home.join(".config/handler/x");
    for wrong in [
        "/",
        "/etc",
        "notes",
        "/tmp/../etc",
        home.to_str().expect("text"),
    ] {
        let error = known.set_root(Some(wrong), true).expect_err(wrong);
        assert!(
            matches!(error, KnowledgeError::Unusable(_)),
            "{wrong}: {error:?}"
        );
    }
    let error = known.set_root(own.to_str(), true).expect_err("ours");
    assert!(error.to_string().contains("Handler itself"), "{error}");
    assert!(!own.exists());
    known.set_root(None, false).expect("as usual");
    assert_eq!(known.root().expect("root").1, KnowledgeSource::Default);
    let given = knowledge(&place, Some(other.clone()));
    assert_eq!(given.root().expect("root"), (other, KnowledgeSource::Env));
    let error = given.set_root(None, false).expect_err("the environment's");
    assert!(matches!(error, KnowledgeError::Conflict(_)), "{error:?}");
    let gone = knowledge(&place, Some(Path::new("/nowhere/at/all").to_owned()));
    assert_eq!(gone.list().expect("not there"), None);
    assert!(gone.check(&["go".to_owned()]).is_err());
}

#[test]
fn the_list_is_three_levels_deep_and_parents_come_first() {
    let place = place();
    let known = knowledge(&place, None);
    symlink("rust", place.root.join("again")).expect("link");
    let found = known.list().expect("listed").expect("there");
    assert_eq!(
        found,
        [
            "go",
            "other",
            "other/go",
            "rust",
            "rust/async",
            "rust/async/deep"
        ]
    );
}

#[test]
fn notes_are_read_beneath_the_root_and_folders_made_there() {
    let place = place();
    let known = knowledge(&place, None);
    for name in ["b.md", "README.MD", "a.txt", ".hidden.md"] {
        std::fs::write(place.root.join("go").join(name), name).expect("note");
    }
    symlink("/etc/passwd", place.root.join("go/passwd.md")).expect("link");
    let fifo = place.root.join("go/pipe.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("pipe");
    let made = known.make("go/new").expect("made");
    assert_eq!((made.path.as_str(), made.notes.len()), ("go/new", 0));
    let seen = known.browse("go").expect("browsed");
    assert_eq!(seen.folders, ["new"]);
    assert_eq!(seen.notes, ["README.MD", "b.md"]);
    assert_eq!(seen.index.as_deref(), Some("README.MD"));
    assert_eq!(known.note("go/b.md").expect("read").text, "b.md");
    let big = vec![b'x'; usize::try_from(MAX_NOTE).expect("fits") + 1];
    std::fs::write(place.root.join("go/big.md"), &big).expect("big");
    std::fs::write(place.root.join("go/whole.md"), &big[1..]).expect("big");
    std::fs::write(place.root.join("go/bytes.md"), b"\xff").expect("bytes");
    known.note("go/whole.md").expect("just fits");
    for (path, words) in [
        ("go/passwd.md", "leads out"),
        ("go/pipe.md", "not a file"),
        ("go/.hidden.md", "hidden"),
        ("go/big.md", "1 MiB"),
        ("go/bytes.md", "not text"),
        ("go/none.md", "does not exist"),
        ("go", "not a file"),
    ] {
        let error = known.note(path).expect_err(path);
        assert!(error.to_string().contains(words), "{path}: {error}");
    }
    assert!(matches!(
        known.make("go/new"),
        Err(KnowledgeError::Conflict(_))
    ));
    for wrong in [
        "go/.x",
        "_x",
        "go/",
        "",
        "nothing/x",
        "../x",
        "/x",
        ".git/x",
    ] {
        assert!(known.make(wrong).is_err() || wrong == "go/", "{wrong}");
    }
}
