//! Provider files: strict reading, and wrong ones that stand in nobody's way.

use handler_store::providers::{ProviderFileError, ProviderFiles, parse_provider};
use handler_types::provider::{
    FileSource, PROVIDER_VERSION, Protocol, Provider, ProviderModel, SecretRef,
};
use std::collections::BTreeMap;

const GOOD: &str = r#"# hand-written
apiVersion = "handler.provider/v1"
description = "a router"
apiKey = { secret = "providers/router/apiKey" }

[endpoints]
anthropic = "https://router.example/api"
openai-chat = "https://router.example/api/v1"

[[models]]
id = "vendor/model-a"
name = "Model A"
contextWindow = 200_000
maxOutput = 32000
reasoning = true
images = false
temperature = 1

[[models]]
id = "vendor/model-b"
temperature = 0.5
"#;

#[test]
fn a_hand_written_file_is_read() {
    let provider = parse_provider("router", GOOD).expect("good");
    assert_eq!(provider.api_version, PROVIDER_VERSION);
    assert_eq!(
        provider.endpoints[&Protocol::OpenaiChat],
        "https://router.example/api/v1"
    );
    assert_eq!(
        provider.api_key,
        Some(SecretRef::Secret("providers/router/apiKey".into()))
    );
    assert_eq!(provider.models.len(), 2);
    assert_eq!(provider.models[0].context_window, Some(200_000));
    assert_eq!(provider.models[0].temperature, Some(1.0));
    let inline = GOOD
        .split("[[models]]")
        .next()
        .expect("head")
        .replace("[endpoints]", "models = [{ id = \"x\" }]\n[endpoints]");
    assert_eq!(
        parse_provider("router", &inline).expect("inline").models[0].id,
        "x"
    );
}

/// What is replaced in [`GOOD`], by what, and words of the problem.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "description =",
        "descripton =",
        ":3: unknown key `descripton`; did you mean `description`?",
    ),
    (
        "openai-chat =",
        "openai_chat =",
        ":8: unknown key `openai_chat` in endpoints; did you mean `openai-chat`?",
    ),
    (
        "secret =",
        "secert =",
        ":4: unknown key `secert` in apiKey; did you mean `secret`?",
    ),
    (
        "maxOutput =",
        "maxTokens =",
        ":14: unknown key `maxTokens` in models;",
    ),
    (
        "contextWindow",
        "context_window",
        "did you mean `contextWindow`?",
    ),
    (
        "handler.provider/v1",
        "handler.provider/v2",
        ":2: apiVersion must be \"handler.provider/v1\"",
    ),
    (
        "apiVersion = \"handler.provider/v1\"",
        "",
        "apiVersion is missing",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "\"sk-literal\"",
        ":4: apiKey must not hold the key itself: run `handler secret set providers/router/apiKey`",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{}",
        ":4: apiKey needs exactly one of secret, env, file, command",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ env = \"A\", file = \"/a\" }",
        "exactly one",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ env = \"A=B\" }",
        ":4: apiKey.env",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ file = \"a\" }",
        ":4: apiKey.file",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ command = \"pass x\" }",
        ":4: apiKey.command must be a list",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ command = [] }",
        ":4: apiKey.command",
    ),
    (
        "{ secret = \"providers/router/apiKey\" }",
        "{ env = 1 }",
        ":4: apiKey.env must be a text",
    ),
    ("providers/router/apiKey", "../x", ":4: not a secret path"),
    (
        "https://router.example/api\"",
        "ftp://router.example\"",
        ":7: endpoints.anthropic: a URL starts with http",
    ),
    (
        "https://router.example/api\"",
        "https://me:sk-literal@router.example\"",
        "no user and no password",
    ),
    (
        "\"https://router.example/api\"",
        "1",
        ":7: endpoints.anthropic must be a text",
    ),
    ("[endpoints]", "[models2]", "endpoints needs at least one"),
    (
        "vendor/model-b",
        "vendor/model-a",
        ":20: two models have this id",
    ),
    ("id = \"vendor/model-b\"", "", "a model needs an id"),
    ("\"vendor/model-b\"", "\"\"", ":20: a model's id is empty"),
    (
        "200_000",
        "0",
        ":13: contextWindow must be a whole number above 0",
    ),
    ("200_000", "\"many\"", ":13: contextWindow"),
    (
        "reasoning = true",
        "reasoning = 1",
        ":15: reasoning must be true or false",
    ),
    ("temperature = 0.5", "temperature = nan", ":21: temperature"),
    ("temperature = 0.5", "temperature = -1", ":21: temperature"),
    (
        "[[models]]\nid = \"vendor/model-b\"",
        "[[models]",
        "not TOML",
    ),
    (
        "\n[[models]]\nid = \"vendor/model-a\"",
        "\n[[models]]\nid = \"vendor/model-a\"\nid = \"b\"",
        "not TOML",
    ),
];

#[test]
fn every_mistake_is_told_with_file_line_and_help() {
    for (from, to, words) in MISTAKES {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replace(from, to);
        let problems = parse_provider("router", &text).expect_err(to);
        let all = problems.join("\n");
        assert!(all.contains(words), "{to}: {all}");
        assert!(all.starts_with("router.toml:"), "{all}");
        assert!(!all.contains("sk-literal"), "{all}");
    }
    let bare = "apiVersion = \"handler.provider/v1\"\nmodels = []\nendpoints = {}\n";
    let problems = parse_provider("bare", bare).expect_err("nothing in it");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(parse_provider("bare", "").is_err());
}

fn provider() -> Provider {
    Provider {
        api_version: PROVIDER_VERSION.to_owned(),
        description: Some("say \"hi\"".to_owned()),
        endpoints: BTreeMap::from([
            (Protocol::OpenaiChat, "http://localhost:11434/v1".to_owned()),
            (Protocol::Anthropic, "http://localhost:11434".to_owned()),
        ]),
        api_key: Some(SecretRef::Command(vec!["pass".into(), "show x".into()])),
        models: vec![
            ProviderModel {
                id: "a".to_owned(),
                temperature: Some(0.0),
                ..ProviderModel::default()
            },
            ProviderModel {
                id: "b:c".to_owned(),
                context_window: Some(8192),
                images: Some(true),
                ..ProviderModel::default()
            },
        ],
        files: BTreeMap::from([(
            "codex".to_owned(),
            BTreeMap::from([
                (
                    "instructions_md".to_owned(),
                    FileSource::Content("You are Codex.\n".to_owned()),
                ),
                (
                    "config_toml".to_owned(),
                    FileSource::File("~/codex.toml".to_owned()),
                ),
            ]),
        )]),
        contexts: vec!["Work".to_owned(), "any".to_owned()],
    }
}

#[test]
fn a_provider_written_is_read_back_and_removed() {
    let dir = tempfile::tempdir().expect("temp folder");
    let files = ProviderFiles::new(dir.path().join("providers"));
    assert!(files.list().expect("no folder").is_empty());
    assert_eq!(files.get("local").expect("none"), None);
    let mut wanted = provider();
    for key in [
        wanted.api_key.clone(),
        None,
        Some(SecretRef::Secret("a/b".into())),
        Some(SecretRef::Env("KEY".into())),
        Some(SecretRef::File("~/key".into())),
    ] {
        wanted.api_key = key;
        files.put("local", &wanted).expect("put");
        assert_eq!(files.get("local").expect("get"), Some(wanted.clone()));
    }
    assert!(files.remove("local").expect("remove"));
    assert!(!files.remove("local").expect("remove again"));

    wanted.models[1].id = "a".to_owned();
    let error = files.put("local", &wanted).expect_err("two of one id");
    assert!(
        matches!(error, ProviderFileError::Invalid { .. }),
        "{error}"
    );
    assert_eq!(files.get("local").expect("none"), None);
}

#[test]
fn names_never_leave_the_folder() {
    let dir = tempfile::tempdir().expect("temp folder");
    let files = ProviderFiles::new(dir.path().to_owned());
    let long = "a".repeat(64);
    for name in [
        "", "..", "../x", "a/b", "A", ".a", "-a", "a.b", "a\0", "ä", &long,
    ] {
        let wrong = |error| matches!(error, ProviderFileError::InvalidName { .. });
        assert!(wrong(files.get(name).expect_err(name)));
        assert!(wrong(files.put(name, &provider()).expect_err(name)));
        assert!(wrong(files.remove(name).expect_err(name)));
    }
    files.put(&"a".repeat(63), &provider()).expect("longest");
}

#[test]
fn a_wrong_file_is_listed_with_its_problems_beside_the_good_ones() {
    let dir = tempfile::tempdir().expect("temp folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).expect("write");
    };
    write("good.toml", GOOD.as_bytes());
    write(
        "wrong.toml",
        GOOD.replace("[endpoints]", "[endpoint]").as_bytes(),
    );
    write("Bad Name.toml", GOOD.as_bytes());
    write("binary.toml", &[0xff, 0xfe]);
    write("huge.toml", &vec![b'#'; 1024 * 1024 + 1]);
    write("notes.txt", b"not ours");
    write(".hidden.toml", b"an editor's");
    std::fs::create_dir(dir.path().join("folder.toml")).expect("folder");
    std::os::unix::fs::symlink("/proc/nonexistent", dir.path().join("link.toml")).expect("link");
    let entries = ProviderFiles::new(dir.path().to_owned())
        .list()
        .expect("list");
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Bad Name", "binary", "folder", "good", "huge", "link", "wrong"
        ]
    );
    for entry in entries {
        match entry.provider {
            Ok(_) => assert_eq!(entry.name, "good"),
            Err(problems) => {
                assert_ne!(entry.name, "good");
                assert!(!problems.is_empty() && problems[0].contains(&entry.name));
            }
        }
    }
}
