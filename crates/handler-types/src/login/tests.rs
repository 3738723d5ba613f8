//! Which fields are tokens, files written again, and what an answer changes.

use super::*;

const CODEX: &str = r#"{
  "OPENAI_API_KEY": null,
  "tokens": {
    "id_token": "eyJhbGciOiJSUzI1NiJ9.eyJlbWFpbCI6ImFAYi5jIn0.c2lnbmF0dXJlLW9mLWlk",
    "access_token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLWFjY2Vzcw",
    "refresh_token": "rt_0123456789abcdef",
    "account_id": "acc-0123456789"
  },
  "last_refresh": "2026-01-01T00:00:00Z"
}"#;
const CLAUDE: &str = r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-AAAABBBBCCCC","refreshToken":"sk-ant-ort01-AAAABBBBCCCC","expiresAt":1760000000000,"scopes":["user:inference"],"subscriptionType":"max"}}"#;
const GEMINI: &str = r#"{"access_token":"ya29.a0AfB_0123456789","refresh_token":"1//0gabcdefgh","scope":"https://a.example/auth","token_type":"Bearer","id_token":"eyJh.eyJz.c2ln","expiry_date":1760000000000}"#;
const VIBE: &str = "# the key\nexport MISTRAL_API_KEY='abcdefgh12345678' # mine\nOTHER=plain\nMY_KEY=zyxwvuts\n\nEMPTY_TOKEN=\n";

fn fields(text: &str) -> Vec<String> {
    let file = LoginFile::parse(text).expect("a login");
    file.tokens().into_iter().map(|token| token.field).collect()
}

#[test]
fn tokens_of_known_programs_are_found_and_nothing_else() {
    for (text, wanted) in [
        (
            CODEX,
            &[
                "/tokens/id_token",
                "/tokens/access_token",
                "/tokens/refresh_token",
            ][..],
        ),
        (
            CLAUDE,
            &["/claudeAiOauth/accessToken", "/claudeAiOauth/refreshToken"][..],
        ),
        (
            GEMINI,
            &["/access_token", "/refresh_token", "/id_token"][..],
        ),
        (VIBE, &["/MISTRAL_API_KEY", "/MY_KEY"][..]),
        (
            r#"{"a/b~":[{"x-api-key":"12345678"},"ghp_0123456789abcdefghij"],"n":"sk-short"}"#,
            &["/a~1b~0/0/x-api-key", "/a~1b~0/1"][..],
        ),
    ] {
        assert_eq!(fields(text), wanted, "{text}");
    }
}

#[test]
fn a_file_comes_back_with_other_tokens_and_else_as_it_was() {
    for text in [CODEX, CLAUDE, GEMINI, VIBE] {
        let mut file = LoginFile::parse(text).expect("a login");
        let mut wanted = text.to_owned();
        for token in file.tokens() {
            let other = "X".repeat(token.value.len());
            wanted = wanted.replace(token.value.as_str(), &other);
            file.set(&token.field, &other);
        }
        let got = file.text();
        if let LoginFile::Json(value) = file {
            let wanted: Value = serde_json::from_str(&wanted).expect("JSON");
            assert_eq!(value, wanted);
            assert_eq!(got.parse::<Value>().expect("JSON"), wanted);
        } else {
            assert_eq!(got.as_str(), wanted);
        }
    }
}

#[test]
fn what_is_no_login_is_refused_without_showing_it() {
    let many = |count: usize| {
        let each: Vec<String> = (0..count)
            .map(|n| format!("\"t{n}_token\":\"12345678\""))
            .collect();
        format!("{{{}}}", each.join(","))
    };
    assert!(LoginFile::parse(&many(32)).is_ok());
    for (text, wanted) in [
        (String::new(), LoginFileError::Length),
        (" ".repeat(MAX_LOGIN_FILE + 1), LoginFileError::Length),
        ("{\"a\":\n1".to_owned(), LoginFileError::Form { line: 2 }),
        (
            "A_KEY=12345678\nhello\n".to_owned(),
            LoginFileError::Form { line: 2 },
        ),
        (
            "A_KEY='12345678\n".to_owned(),
            LoginFileError::Form { line: 1 },
        ),
        (
            "{\"account\":\"12345678\"}".to_owned(),
            LoginFileError::NoToken,
        ),
        ("A=12345678\n".to_owned(), LoginFileError::NoToken),
        (many(33), LoginFileError::TooMany),
        (
            "{\"token\":\"planted\"}".to_owned(),
            LoginFileError::Unprintable {
                field: "/token".to_owned(),
            },
        ),
        (
            "{\"token\":\"planted with spaces\"}".to_owned(),
            LoginFileError::Unprintable {
                field: "/token".to_owned(),
            },
        ),
        (
            format!("{{\"token\":\"{}\"}}", "p".repeat(LONGEST_TOKEN + 1)),
            LoginFileError::Unprintable {
                field: "/token".to_owned(),
            },
        ),
    ] {
        let error = LoginFile::parse(&text).expect_err("no login");
        assert_eq!(error, wanted);
        assert!(!error.to_string().contains("planted"));
        assert!(!format!("{error:?}").contains("planted"));
    }
    let file = LoginFile::parse(CODEX).expect("a login");
    let shown = format!("{file:?}{:?}", file.tokens());
    assert!(!shown.contains("rt_0") && !shown.contains("eyJ"), "{shown}");
}

#[test]
fn an_answer_s_tokens_belong_beside_the_refresh_token_that_was_sent() {
    let belong = |text: &str, refresh: &str, names: &[&str]| {
        let file = LoginFile::parse(text).expect("a login");
        let all = renewed(&file, refresh, names);
        all.into_iter().map(|one| one.field).collect::<Vec<_>>()
    };
    let names = [
        "/access_token",
        "/refresh_token",
        "/id_token",
        "/other/access_token",
    ];
    assert_eq!(
        belong(CODEX, "/tokens/refresh_token", &names),
        [
            "/tokens/access_token",
            "/tokens/refresh_token",
            "/tokens/id_token",
            "/tokens/other/access_token"
        ]
    );
    assert_eq!(
        belong(CLAUDE, "/claudeAiOauth/refreshToken", &names[..3]),
        [
            "/claudeAiOauth/accessToken",
            "/claudeAiOauth/refreshToken",
            "/claudeAiOauth/id_token"
        ]
    );
    let two = r#"{"a":{"accessToken":"12345678","refreshToken":"abcdefgh"},"b":{"accessToken":"87654321","refreshToken":"hgfedcba"}}"#;
    assert_eq!(
        belong(two, "/b/refreshToken", &names[..1]),
        ["/b/accessToken"]
    );
    assert!(is_refresh("/b/refreshToken") && is_refresh("/REFRESH_TOKEN"));
    assert!(!is_refresh("/b/accessToken") && !is_refresh("/refreshToken/a"));
}

#[test]
fn times_are_put_right_in_their_own_unit_and_only_beside_the_token() {
    let text = |text: &str, refresh: &str, expires: Option<u64>| {
        let mut file = LoginFile::parse(text).expect("a login");
        file.set_times(refresh, 1_800_000_000_123, "2027-01-15T08:00:00Z", expires);
        let LoginFile::Json(value) = file else {
            panic!("JSON")
        };
        value
    };
    let codex = text(CODEX, "/tokens/refresh_token", Some(60));
    assert_eq!(codex["last_refresh"], "2027-01-15T08:00:00Z");
    let claude = text(CLAUDE, "/claudeAiOauth/refreshToken", Some(60));
    assert_eq!(claude["claudeAiOauth"]["expiresAt"], 1_800_000_060_123_i64);
    let seconds = r#"{"refresh_token":"12345678","expires_at":1760000000,"o":{"expires_at":5}}"#;
    let value = text(seconds, "/refresh_token", Some(60));
    assert_eq!(
        (&value["expires_at"], &value["o"]["expires_at"]),
        (&Value::from(1_800_000_060), &Value::from(5))
    );
    let value = text(seconds, "/refresh_token", None);
    assert_eq!(value["expires_at"], 1_760_000_000);
    let value = text(seconds, "/refresh_token", Some(u64::MAX));
    assert_eq!(
        value["expires_at"], 1_760_000_000,
        "nonsense changes nothing"
    );
}
