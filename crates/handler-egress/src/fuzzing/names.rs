//! Entries of allow-lists, and destinations: one spelling each, and the index against the slow way.

use crate::index::AllowIndex;
use crate::target::{Target, TargetHost};
use handler_types::network::AllowEntry;
use std::net::IpAddr;

/// A destination that is read is written as what reads the same again, and its name is no address for anybody.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for default in [None, Some(80)] {
        let Ok(target) = Target::parse(text, default) else {
            continue;
        };
        assert_eq!(
            Target::parse(&target.to_string(), None).as_ref(),
            Ok(&target)
        );
        assert_ne!(target.port, 0);
        if let TargetHost::Name(name) = &target.host {
            assert!(name.parse::<IpAddr>().is_err(), "{name} is an address");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase())
            );
            assert!(!name.ends_with('.') && !name.contains(['@', '%', '/', ':', '\\', '#', '?']));
            let last = name.rsplit('.').next().unwrap_or_default();
            assert!(last.parse::<u64>().is_err(), "{name} ends like an address");
        }
    }
}

/// Lines of entries, and a destination in the last one: the index says what the entries say one by one, and an entry
/// is written as what reads the same again, in JSON too.
pub fn allow_entry(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let entries: Vec<AllowEntry> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in &entries {
        assert_eq!(entry.to_string().parse().as_ref(), Ok(entry));
        let json = serde_json::to_vec(entry).expect("an entry is JSON");
        let read: AllowEntry = serde_json::from_slice(&json).expect("what was written");
        assert_eq!(&read, entry);
    }
    let Some(Ok(target)) = text.lines().last().map(|line| Target::parse(line, None)) else {
        return;
    };
    let index = AllowIndex::new(&entries);
    let host = target.host_text();
    let listed = entries
        .iter()
        .any(|entry| entry.matches(&host, target.port));
    assert_eq!(index.lists(&target), listed, "{target}");
    let rule = index.rule(&target);
    assert_eq!(rule.is_some(), listed, "{target}");
    if let Some(rule) = rule {
        let rule: AllowEntry = rule.parse().expect("a rule is an entry");
        assert!(entries.contains(&rule) && rule.matches(&host, target.port));
    }
}
