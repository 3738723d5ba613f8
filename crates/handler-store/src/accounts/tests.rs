//! Accounts as files: what is read, written and kept of a person's own words.

use super::*;
use handler_types::provider::SecretRef;

const WRITTEN: &str = "# mine\napiVersion = \"handler.account/v1\"\nharness = \"claude-code\" # the good one\n\
    # who pays\ndescription = \"me@example.com\"\n";

fn files() -> (tempfile::TempDir, AccountFiles) {
    let folder = tempfile::tempdir().expect("folder");
    let files = AccountFiles::new(folder.path().join("accounts"));
    (folder, files)
}

#[test]
fn an_account_is_kept_and_the_comments_of_its_file_survive_a_change() {
    let (folder, files) = files();
    std::fs::create_dir(folder.path().join("accounts")).expect("folder");
    let path = folder.path().join("accounts/perso.toml");
    std::fs::write(&path, WRITTEN).expect("write");
    let mut account = files.get("perso").expect("read").expect("there");
    assert_eq!(account.description.as_deref(), Some("me@example.com"));
    account.token = Some(SecretRef::Command(vec!["pass".into(), "show".into()]));
    account.contexts = vec!["Work".into(), "any".into()];
    account.connectors = true;
    account.harness = "codex".into();
    files.put("perso", &account).expect("put");
    let text = std::fs::read_to_string(&path).expect("read");
    for kept in ["# mine", "\"codex\" # the good one", "# who pays"] {
        assert!(text.contains(kept), "{kept} in {text}");
    }
    assert!(
        text.contains("token = { command = [\"pass\", \"show\"] }"),
        "{text}"
    );
    assert_eq!(files.get("perso").expect("read"), Some(account.clone()));
    account.token = None;
    account.contexts.clear();
    files.put("perso", &account).expect("put");
    assert_eq!(files.get("perso").expect("read"), Some(account.clone()));

    files.rename("perso", "work").expect("renamed");
    assert_eq!(files.get("work").expect("read"), Some(account));
    assert_eq!(files.list().expect("list").len(), 1);
    assert!(files.remove("work").expect("removed"));
    assert!(!files.remove("work").expect("removed"));
}

#[test]
fn a_wrong_file_is_told_with_its_line_and_without_its_values() {
    for (text, words) in [
        ("harness = \"x\"", "apiVersion is missing"),
        ("apiVersion = \"handler.account/v1\"", "harness is missing"),
        (
            "apiVersion = \"handler.account/v2\"\nharness = \"x\"",
            "a.toml:1: apiVersion must be",
        ),
        (&format!("{WRITTEN}plans = \"pro\""), "did you mean `plan`?"),
        (
            &format!("{WRITTEN}token = \"sk-hidden\""),
            "handler account token a",
        ),
        (
            &format!("{WRITTEN}token = {{ env = \"A\", file = \"/b\" }}"),
            "exactly one of",
        ),
        (
            &format!("{WRITTEN}token = {{ file = \"b\" }}"),
            "token.file must start",
        ),
        (&format!("{WRITTEN}connectors = 1"), "true or false"),
        (&format!("{WRITTEN}contexts = \"Work\""), "must be a list"),
        (&format!("{WRITTEN}contexts = [\"a/b\"]"), "a context has"),
        ("harness = [", "not TOML"),
    ] {
        let problems = parse_account("a", text).expect_err("wrong").join("\n");
        assert!(problems.contains(words), "{text}: {problems}");
        assert!(!problems.contains("sk-hidden"), "{problems}");
    }
    let (_folder, files) = files();
    for name in ["", "../a", "A", "-a", "a.b"] {
        let refused = files.get(name).expect_err("no name");
        assert!(matches!(refused, AccountFileError::InvalidName { .. }));
    }
}

#[test]
fn a_wrong_file_is_listed_and_not_written_over() {
    let (folder, files) = files();
    std::fs::create_dir(folder.path().join("accounts")).expect("folder");
    let path = folder.path().join("accounts/bad.toml");
    std::fs::write(&path, "harness = 1\n").expect("write");
    let listed = files.list().expect("list");
    assert!(listed[0].account.is_err());
    let account = parse_account("a", WRITTEN).expect("fine");
    assert!(files.put("bad", &account).is_err());
    assert_eq!(
        std::fs::read_to_string(&path).expect("read"),
        "harness = 1\n"
    );
}
