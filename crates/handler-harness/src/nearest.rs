//! The nearest known word to a mistyped one, for error messages.

/// The candidate with the fewest single-letter edits to `word`, when that is close enough to be a slip:
/// at most a third of its letters, and at least one is the same.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A longer word is no slip, and the work stays bounded whatever is typed.
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.chars().count() / 3).max(1))
        .filter(|(edits, candidate)| *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, removals and replacements between two words.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_word_and_nonsense_finds_none() {
        let known = ["claude-code", "pi"];
        assert_eq!(nearest("claude-cod", known), Some("claude-code"));
        assert_eq!(nearest("Claude-Code", known), Some("claude-code"));
        assert_eq!(nearest("claud_code", known), Some("claude-code"));
        assert_eq!(nearest("p", known), Some("pi"));
        assert_eq!(nearest("pie", known), Some("pi"));
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("vibe", known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
