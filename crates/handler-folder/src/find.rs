//! Files by what somebody types of their path.

use crate::open::Stat;
use std::collections::BTreeMap;

/// Most paths found.
pub const MOST: usize = 20;

/// The best paths for what was typed: names that begin like it, then names that have it, then paths that have it, then
/// paths with its letters in this order. Nothing typed: those changed last.
#[must_use]
pub fn find(files: &BTreeMap<String, Stat>, typed: &str) -> Vec<String> {
    if typed.is_empty() {
        let mut latest: Vec<(&String, &Stat)> = files.iter().collect();
        latest.sort_by(|a, b| b.1.changed.cmp(&a.1.changed).then_with(|| a.0.cmp(b.0)));
        return latest
            .into_iter()
            .take(MOST)
            .map(|(path, _)| path.clone())
            .collect();
    }
    let typed = typed.to_lowercase();
    let mut ranked: Vec<(u8, usize, &String)> = files
        .keys()
        .filter_map(|path| Some((rank(path, &typed)?, path.len(), path)))
        .collect();
    ranked.sort();
    ranked
        .into_iter()
        .take(MOST)
        .map(|(_, _, path)| path.clone())
        .collect()
}

fn rank(path: &str, typed: &str) -> Option<u8> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    if name.starts_with(typed) {
        return Some(0);
    }
    if name.contains(typed) {
        return Some(1);
    }
    if path.contains(typed) {
        return Some(2);
    }
    let mut letters = path.chars();
    typed
        .chars()
        .all(|wanted| letters.any(|letter| letter == wanted))
        .then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_name_prefix_then_name_then_path_then_letters() {
        let stat = |changed| Stat::from((0, 0, 0, changed, 0));
        let files: BTreeMap<String, Stat> = [
            ("m/a/i/n.rs", 1),
            ("main/lib.rs", 2),
            ("src/domain.rs", 3),
            ("src/Main.rs", 4),
            ("other", 5),
        ]
        .map(|(path, at)| (path.to_owned(), stat(at)))
        .into();
        let wanted = ["src/Main.rs", "src/domain.rs", "main/lib.rs", "m/a/i/n.rs"];
        assert_eq!(find(&files, "main"), wanted);
        assert_eq!(find(&files, "")[0], "other");
        assert!(find(&files, "zzz").is_empty());
        let many: BTreeMap<String, Stat> = (0..100).map(|n| (format!("f{n}"), stat(n))).collect();
        assert_eq!(find(&many, "f").len(), MOST);
    }
}
