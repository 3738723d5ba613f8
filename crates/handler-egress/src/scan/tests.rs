//! Splits at every byte, and the property that splits do not matter.

use super::*;
use crate::settings::tests::settings;
use proptest::prelude::*;

fn rules(secrets: &[(&str, &str, &str, &str)]) -> Arc<Rules> {
    Arc::new(Rules::new(settings(secrets), 1).expect("settings").0)
}

fn target(text: &str) -> Target {
    Target::parse(text, None).expect(text)
}

/// Feeds the pieces one by one and gives what comes out.
fn stream(needles: &Needles, pieces: &[&[u8]]) -> Result<Vec<u8>, Leak> {
    let mut scanner = Scanner::new(needles.clone());
    let mut found = Vec::new();
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&scanner.push(Bytes::copy_from_slice(piece), &mut found)?);
        assert!(scanner.held() < (needles.longest * form::WIDEST).max(1));
    }
    out.extend_from_slice(&scanner.finish(&mut found)?);
    Ok(out)
}

const ONE: &[(&str, &str, &str, &str)] = &[("path", "phantom-1234", "the-value-99", "a.com:443")];

#[test]
fn a_phantom_split_at_every_two_places_becomes_the_value() {
    let needles = Needles::for_request(rules(ONE), &target("a.com:443"), false);
    let text = b"x phantom-1234 y phantom-1234";
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let pieces = [&text[..first], &text[first..second], &text[second..]];
            let out = stream(&needles, &pieces).expect("no leak");
            assert_eq!(out, b"x the-value-99 y the-value-99");
        }
    }
}

#[test]
fn a_value_in_a_response_split_anywhere_becomes_the_phantom() {
    let needles = Needles::for_response(rules(ONE), &target("a.com:443"));
    let text = b"data: the-value-99\n\n";
    for at in 0..=text.len() {
        let out = stream(&needles, &[&text[..at], &text[at..]]).expect("no leak");
        assert_eq!(out, b"data: phantom-1234\n\n");
    }
    assert!(Needles::for_response(rules(ONE), &target("b.com:443")).is_empty());
}

#[test]
fn a_phantom_for_another_host_is_found_at_every_split_and_none_of_its_end_gets_out() {
    let needles = Needles::for_request(rules(ONE), &target("evil.com:443"), false);
    let text = b"x phantom-1234 y";
    for at in 0..=text.len() {
        assert_eq!(stream(&needles, &[&text[..at], &text[at..]]), Err(Leak(0)));
    }
}

#[test]
fn a_value_is_not_given_in_the_clear_on_the_port_of_https() {
    let needles = Needles::for_request(rules(ONE), &target("a.com:443"), true);
    assert_eq!(stream(&needles, &[b"phantom-1234"]), Err(Leak(0)));
}

#[test]
fn nothing_waits_that_cannot_begin_a_needle() {
    let needles = Needles::for_response(rules(ONE), &target("a.com:443"));
    let mut scanner = Scanner::new(needles);
    let out = scanner
        .push(Bytes::from_static(b"data: 1\n\n"), &mut Vec::new())
        .expect("no leak");
    assert_eq!(out, "data: 1\n\n");
    let out = scanner
        .push(Bytes::from_static(b"data: the-v"), &mut Vec::new())
        .expect("no leak");
    assert_eq!(out, "data: ");
}

#[test]
fn one_secret_bound_twice_is_given_to_the_hosts_of_both() {
    let twice = [
        ("one", "phantom-1234", "the-value-99", "a.com:443"),
        ("two", "phantom-1234", "the-value-99", "b.com:443"),
    ];
    for host in ["a.com:443", "b.com:443"] {
        let needles = Needles::for_request(rules(&twice), &target(host), false);
        assert_eq!(
            stream(&needles, &[b"phantom-1234"]).expect("given"),
            b"the-value-99"
        );
    }
}

proptest! {
    /// Needles out of two letters overlap in every way; the outcome must not depend on the splits.
    #[test]
    fn the_outcome_does_not_depend_on_where_bytes_are_split(
        needles in proptest::collection::vec(("[ab]{8,12}", any::<bool>()), 1..4),
        text in "[ab]{0,80}",
        cuts in proptest::collection::vec(0usize..80, 0..6),
    ) {
        let secrets: Vec<(String, String, String, &str)> = needles
            .iter()
            .enumerate()
            .map(|(index, (phantom, given))| {
                let value = "V".repeat(phantom.len());
                (format!("s{index}"), phantom.clone(), value,
                 if *given { "a.com:443" } else { "b.com:443" })
            })
            .collect();
        let listed: Vec<(&str, &str, &str, &str)> = secrets
            .iter()
            .map(|(n, p, v, h)| (n.as_str(), p.as_str(), v.as_str(), *h))
            .collect();
        let needles = Needles::for_request(rules(&listed), &target("a.com:443"), false);
        let text = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        prop_assert_eq!(stream(&needles, &pieces).map_err(|_| ()),
                        stream(&needles, &[text]).map_err(|_| ()));
        if let Ok(out) = stream(&needles, &pieces) {
            prop_assert_eq!(out.len(), text.len());
        }
    }
}

const SHAPED: &[(&str, &str, &str, &str)] = &[
    ("mine", "ab/PHANTOM+12", "ab/secrets+99", "a.com:443"),
    ("other", "PHANTOM-other", "secrets-other", "b.com:443"),
];
const ODD: &[(&str, &str, &str, &str)] = &[("odd", "ab/phantom-1", "a\"\\&=%<>#+;1", "a.com:443")];

fn request(secrets: &[(&str, &str, &str, &str)], form: Form) -> Needles {
    Needles::for_request(rules(secrets), &target("a.com:443"), false).in_form(form)
}

fn all_forms() -> [Form; 3] {
    [Form::Json, Form::Percent, Form::Loose]
}

/// Each character as `how` says: as it is, `%41`, `%4a` in the other case, `\u0041`, `\/`. A character
/// that begins escapes is always escaped, as in a well-formed text.
fn escaped(text: &str, how: &[u8]) -> String {
    let mut out = String::new();
    for (byte, how) in text.bytes().zip(how.iter().cycle()) {
        let plain = char::from(byte);
        match how {
            1 => out.push_str(&format!("%{byte:02X}")),
            2 => out.push_str(&format!("%{byte:02x}")),
            3 => out.push_str(&format!("\\u00{byte:02x}")),
            4 => out.push_str(&format!("\\u00{byte:02X}")),
            0 | 5 if matches!(plain, '%') => out.push_str("%25"),
            0 if matches!(plain, '\\') => out.push_str("\\\\"),
            5 if matches!(plain, '/' | '"' | '\\') => out.extend(['\\', plain]),
            _ => out.push(plain),
        }
    }
    out
}

fn from_json(text: &[u8]) -> String {
    serde_json::from_slice::<String>(text).expect("a JSON string")
}

#[test]
fn an_escaped_phantom_becomes_the_value_in_the_manner_of_its_characters() {
    for form in all_forms() {
        let needles = request(SHAPED, form);
        assert!(needles.keeps_length());
        for (given, wanted) in [
            ("x=ab%2FPHANTOM%2B12;", "x=ab%2Fsecrets%2B99;"),
            ("ab%2f%50HANTOM+12", "ab%2f%73ecrets+99"),
            ("\"ab\\/PHANTOM+12\"", "\"ab\\/secrets+99\""),
            ("ab/\\u0050HANTO\\u004D+12", "ab/\\u0073ecret\\u0073+99"),
        ] {
            for at in 0..=given.len() {
                let (front, back) = given.as_bytes().split_at(at);
                let out = stream(&needles, &[front, back]).expect("no leak");
                assert_eq!(String::from_utf8_lossy(&out), wanted, "{form:?}");
            }
        }
    }
}

#[test]
fn an_escaped_phantom_for_another_host_is_a_leak_in_every_form() {
    for form in all_forms() {
        let needles = request(SHAPED, form);
        for how in 0..5 {
            let text = escaped("PHANTOM-other", &[how]);
            for at in 0..=text.len() {
                let (front, back) = text.as_bytes().split_at(at);
                assert_eq!(stream(&needles, &[front, back]), Err(Leak(1)), "{text}");
            }
        }
    }
}

#[test]
fn what_is_encoded_twice_or_otherwise_stays_as_it_is() {
    for form in all_forms() {
        let needles = request(SHAPED, form);
        for text in [
            "ab%252FPHANTOM+12",
            "ab\\\\/PHANTOM+12",
            "YWIvUEhBTlRPTSsxMg==",
            "ab&#47;PHANTOM+12",
            "100% \\u00 \\ %4 \\u12",
        ] {
            let out = stream(&needles, &[text.as_bytes()]).expect("no leak");
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}

#[test]
fn a_character_that_cannot_stand_as_it_is_is_escaped_where_the_form_has_a_way() {
    let json = request(ODD, Form::Json);
    assert!(!json.keeps_length());
    for given in [
        "\"ab/phantom-1\"",
        "\"ab\\/phantom-1\"",
        "\"\\u0061b/phantom-1\"",
    ] {
        let out = stream(&json, &[given.as_bytes()]).expect("no leak");
        assert_eq!(from_json(&out), ODD[0].2);
    }
    let percent = request(ODD, Form::Percent);
    for given in ["ab/phantom-1", "%61%62%2f%70hantom-1"] {
        let out = stream(&percent, &[given.as_bytes()]).expect("no leak");
        let text = String::from_utf8(out).expect("text");
        assert!(
            !text.contains(['"', '\\', '&', '=', '<', '>', '#', '+', ';']),
            "{text}"
        );
        assert_eq!(from_percent(&text), ODD[0].2);
    }
    let loose = request(ODD, Form::Loose);
    assert!(loose.keeps_length());
    let out = stream(&loose, &[b"ab/phantom-1"]).expect("no leak");
    assert_eq!(String::from_utf8_lossy(&out), ODD[0].2);
}

fn from_percent(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(*first);
        if *first == b'%' {
            let digits = std::str::from_utf8(&rest[..2]).expect("digits");
            *bytes.last_mut().expect("byte") = u8::from_str_radix(digits, 16).expect("hex");
            rest = &rest[2..];
        }
    }
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_value_behind_what_looks_like_an_escape_is_masked() {
    let secrets = [("path", "bPHANTOM-1", "bSECRETS-9", "a.com:443")];
    for form in all_forms() {
        let needles = Needles::for_response(rules(&secrets), &target("a.com:443")).in_form(form);
        for front in ["\\", "%", "\\u006", "%6"] {
            let text = format!("{front}bSECRETS-9");
            let out = stream(&needles, &[text.as_bytes()]).expect("no leak");
            assert!(!String::from_utf8_lossy(&out).contains("SECRETS"), "{text}");
        }
    }
}

fn cut<'a>(text: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut % (text.len() + 1)).collect();
    cuts.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for cut in cuts.into_iter().chain([text.len()]) {
        pieces.push(&text[from..cut]);
        from = cut;
    }
    pieces
}

proptest! {
    /// However its characters are written and wherever it is cut, a phantom comes out as the value.
    #[test]
    fn every_way_of_writing_is_found_at_every_cut(
        hidden in "[a-z/\"\\\\%+]{6,10}", fill in "[A-Z]{2}",
        how in proptest::collection::vec(0u8..6, 1..12),
        cuts in proptest::collection::vec(0usize..200, 0..6),
        form in 0usize..3,
    ) {
        let phantom = format!("{fill}{hidden}");
        let value = format!("12{hidden}");
        let secrets = [("path", phantom.as_str(), value.as_str(), "a.com:443")];
        let needles = request(&secrets, all_forms()[form]);
        let (given, wanted) = (escaped(&phantom, &how), escaped(&value, &how));
        let text = format!("<{given}|{given}>");
        let out = stream(&needles, &cut(text.as_bytes(), &cuts)).expect("no leak");
        let out = String::from_utf8(out).expect("text").to_ascii_lowercase();
        prop_assert_eq!(out, format!("<{wanted}|{wanted}>").to_ascii_lowercase());
    }

    /// Any bytes around marks and needles: the outcome does not depend on the cuts.
    #[test]
    fn escapes_do_not_make_the_outcome_depend_on_the_cuts(
        pieces in proptest::collection::vec(
            prop_oneof![Just("ab%5c"), Just("%"), Just("5c"), Just("\\u006"), Just("1b"),
                        Just("\\"), Just("ab"), Just("\\u005c"), Just("%25"), Just("X")], 0..24),
        cuts in proptest::collection::vec(0usize..200, 0..8),
        form in 0usize..3,
    ) {
        let secrets = [
            ("one", "ab%ab\\ab", "12345678", "a.com:443"),
            ("two", "ab\\\\\\\\bbab", "1234567890", "a.com:443"),
            ("three", "%5cab%5cab", "\"234567890", "a.com:443"),
        ];
        let needles = request(&secrets, all_forms()[form]);
        let text = pieces.concat();
        let whole = stream(&needles, &[text.as_bytes()]).expect("no leak");
        prop_assert_eq!(stream(&needles, &cut(text.as_bytes(), &cuts)).expect("no leak"), whole);
    }
}
