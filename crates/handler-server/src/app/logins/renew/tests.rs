//! What a renewal and another file change, and what is forgotten.

use super::*;
use handler_types::egress::{RenewedToken, Renews};
use std::collections::BTreeMap;

const FILE: &str = r#"{"tokens":{"access_token":"access-0000","refresh_token":"refresh-0000"},"last_refresh":"then"}"#;

fn login(grants: &[&str]) -> Login {
    let tokens = LoginFile::parse(FILE).expect("a login").tokens();
    let of = |grant: &&str| {
        let each = tokens
            .iter()
            .map(|t| stand_in(&t.field, &t.value, random).expect("stand-in"));
        ((*grant).to_owned(), each.collect())
    };
    Login {
        file: FILE.to_owned().into(),
        hosts: Vec::new(),
        given_ms: None,
        renewed_ms: None,
        grants: grants.iter().map(of).collect::<BTreeMap<_, _>>(),
    }
}

fn renewal(tokens: &[(&str, &str)]) -> LoginRenewal {
    LoginRenewal {
        seq: 1,
        sandbox: "s".to_owned(),
        renews: Renews {
            login: "codex".to_owned(),
            field: "/tokens/refresh_token".to_owned(),
        },
        tokens: tokens
            .iter()
            .map(|(name, value)| RenewedToken {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        expires_in: None,
    }
}

/// What a text in a sandbox stands for.
fn stands_for(login: &Login, grant: &str, phantom: &str) -> String {
    let found = login.grants[grant]
        .iter()
        .find(|one| one.phantom == phantom);
    found.expect("known").value.to_string()
}

#[test]
fn a_renewal_reaches_the_file_and_every_sandbox_and_changes_nothing_when_told_again() {
    let mut login = login(&["a", "b"]);
    let first: BTreeMap<String, Vec<StandIn>> = login.grants.clone();
    let told = renewal(&[
        ("/access_token", "access-1111-longer"),
        ("/refresh_token", "refresh-1111"),
    ]);
    renew(&mut login, Some("a"), &told, 1_800_000_000_000, random).expect("renewed");
    let file: serde_json::Value = serde_json::from_str(&login.file).expect("JSON");
    assert_eq!(file["tokens"]["access_token"], "access-1111-longer");
    assert_eq!(file["tokens"]["refresh_token"], "refresh-1111");
    assert_eq!(file["last_refresh"], "2027-01-15T08:00:00.000Z");
    for grant in ["a", "b"] {
        let [access, refresh] = first[grant].as_slice() else {
            panic!("two")
        };
        assert_eq!(stands_for(&login, grant, &access.phantom), "access-0000");
        assert_eq!(stands_for(&login, grant, &refresh.phantom), "refresh-1111");
        let known = |value: &str| login.grants[grant].iter().any(|one| *one.value == value);
        assert!(
            known("access-1111-longer") && known("refresh-0000"),
            "masked in {grant}"
        );
    }
    let newest = login.grants["a"].last().expect("one");
    assert_eq!(newest.field, "/tokens/refresh_token");
    assert_ne!(newest.phantom, first["a"][1].phantom);
    let before = login.clone();
    renew(&mut login, Some("a"), &told, 1_800_000_000_000, random).expect("again");
    assert_eq!(
        (&*login.file, &login.grants),
        (&*before.file, &before.grants)
    );
}

#[test]
fn another_file_moves_all_stand_ins_of_the_same_length() {
    let mut login = login(&["a"]);
    let first = login.grants["a"].clone();
    let file = FILE
        .replace("access-0000", "access-2222")
        .replace("refresh-0000", "longer-refresh");
    replace(&mut login, file.clone(), random).expect("replaced");
    assert_eq!(*login.file, file);
    assert_eq!(stands_for(&login, "a", &first[0].phantom), "access-2222");
    assert_eq!(
        stands_for(&login, "a", &first[1].phantom),
        "refresh-0000",
        "it cannot"
    );
    let newest = login.grants["a"].last().expect("one");
    assert_eq!(*newest.value, "longer-refresh");
}

#[test]
fn the_oldest_are_forgotten_and_what_a_sandbox_began_with_still_renews() {
    let mut login = login(&["a", "b"]);
    let began = login.grants["b"][1].phantom.clone();
    for n in 1..200 {
        let (access, refresh) = (format!("access-{n:04}"), format!("refresh-{n:04}"));
        let told = renewal(&[("/access_token", &access), ("/refresh_token", &refresh)]);
        renew(&mut login, Some("a"), &told, 0, random).expect("renewed");
    }
    for grant in ["a", "b"] {
        assert!(login.grants[grant].len() <= MOST);
        let known = |value: &str| login.grants[grant].iter().any(|one| *one.value == value);
        assert!(known("access-0199") && known("refresh-0199") && !known("access-0001"));
    }
    assert_eq!(stands_for(&login, "b", &began), "refresh-0199");
    let newest = login.grants["a"].last().expect("one");
    assert_eq!(
        (newest.value.as_str(), newest.field.as_str()),
        ("refresh-0199", "/tokens/refresh_token")
    );
}

#[test]
fn a_token_without_a_stand_in_changes_nothing_that_is_kept() {
    let mut login = login(&["a"]);
    let told = renewal(&[("/access_token", "not printable")]);
    let error = renew(&mut login, Some("a"), &told, 0, random).expect_err("refused");
    assert!(!error.to_string().contains("not printable"));
    assert_eq!(*login.file, FILE);
}
