//! References to secrets, followed.

use crate::secrets::secrets;
use handler_store::SecretStore;
use handler_store::secrets::{MAX_VALUE, ResolveError};
use handler_types::SecretValue;
use handler_types::provider::SecretRef;

const PLANTED: &str = "sk-planted-0123456789";

async fn resolve(store: &SecretStore, reference: &SecretRef) -> Result<String, ResolveError> {
    let env = |name: &str| match name {
        "KEY" => Some(format!(" {PLANTED}")),
        "EMPTY" => Some(String::new()),
        "LONG" => Some("x".repeat(MAX_VALUE + 1)),
        _ => None,
    };
    let value = store.resolve(reference, env).await?;
    Ok(value.expose().to_owned())
}

fn command(words: &[&str]) -> SecretRef {
    SecretRef::Command(words.iter().map(|&word| word.to_owned()).collect())
}

#[tokio::test]
async fn each_kind_of_source_gives_its_value() {
    let temp = secrets();
    let path = temp.dir.path().join("key.txt");
    std::fs::write(&path, format!("  {PLANTED} \r\nsecond line\n")).expect("write");
    let set = SecretValue::new(PLANTED.to_owned());
    temp.store.set("a/b", set, None).await.expect("set");
    for (reference, value) in [
        (SecretRef::Secret("a/b".into()), PLANTED.to_owned()),
        (SecretRef::Env("KEY".into()), format!(" {PLANTED}")),
        (
            SecretRef::File(path.display().to_string()),
            PLANTED.to_owned(),
        ),
        (command(&["echo", PLANTED]), PLANTED.to_owned()),
        // No shell reads the words.
        (
            command(&["printf", "%s", "$HOME;id"]),
            "$HOME;id".to_owned(),
        ),
    ] {
        let got = resolve(&temp.store, &reference).await.expect("value");
        assert_eq!(got, value, "{reference:?}");
    }
    let home = temp.dir.path().display().to_string();
    let env = |name: &str| (name == "HOME").then(|| home.clone());
    let file = SecretRef::File("~/key.txt".into());
    let value = temp.store.resolve(&file, env).await.expect("in the home");
    assert_eq!(value.expose(), PLANTED);
}

#[tokio::test]
async fn a_command_runs_in_a_group_of_its_own() {
    let temp = secrets();
    // Field 5 of stat is the process group; the leader's is its own id.
    let script = "read -r stat < /proc/$$/stat; set -- $stat; echo \"$1 $5\"";
    let reference = command(&["sh", "-c", script]);
    let got = resolve(&temp.store, &reference).await.expect("value");
    let (pid, group) = got.split_once(' ').expect("two numbers");
    assert_eq!(pid, group);
}

#[tokio::test]
async fn what_gives_no_value_is_said_without_its_content() {
    let temp = secrets();
    let dir = temp.dir.path();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("write");
        SecretRef::File(path.display().to_string())
    };
    let pipe = dir.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let print = format!("echo {PLANTED}; echo {PLANTED} >&2; exit 3");
    let much = format!("while :; do echo {PLANTED}; done");
    let not_text = [PLANTED.as_bytes(), &[0xff]].concat();
    let long = vec![b'x'; MAX_VALUE + 1];
    let cases = [
        (SecretRef::Secret("none".into()), "handler secret set none"),
        (SecretRef::Secret("../x".into()), "not a secret path"),
        (SecretRef::Env("NONE".into()), "NONE"),
        (SecretRef::Env("EMPTY".into()), "EMPTY"),
        (SecretRef::Env("LONG".into()), "longer than 64 KiB"),
        (
            SecretRef::File("/proc/nonexistent/x".into()),
            "/proc/nonexistent/x",
        ),
        (SecretRef::File("relative".into()), "not an absolute path"),
        (SecretRef::File(dir.display().to_string()), "cannot be read"),
        (
            SecretRef::File(pipe.display().to_string()),
            "cannot be read",
        ),
        (file("empty", b" \n"), "empty"),
        (file("binary", &not_text), "not text"),
        (file("long", &long), "longer than 64 KiB"),
        (command(&[]), "no program"),
        (command(&["/proc/nonexistent/program"]), "cannot be run"),
        (command(&["sh", "-c", &print]), "code 3"),
        (command(&["sh", "-c", "kill -9 $$"]), "a signal"),
        (command(&["sh", "-c", &much]), "more than 64 KiB"),
        (command(&["true"]), "empty"),
    ];
    for (reference, words) in cases {
        let error = resolve(&temp.store, &reference)
            .await
            .expect_err("no value");
        let text = format!("{error}");
        assert!(text.contains(words), "{reference:?}: {text}");
        assert!(!format!("{error:?} {text}").contains(PLANTED), "{text}");
    }
}
