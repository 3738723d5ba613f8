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
        assert!(scanner.held() < needles.longest.max(1));
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
