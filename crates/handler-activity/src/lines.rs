//! Rows of a screen made ready for rules: cut to a bounded size, spaces at their end left out.

/// Most rows looked at, counted from the bottom: more than any screen that a person reads.
pub(crate) const MOST_ROWS: usize = 200;
/// Most characters of a row looked at.
pub(crate) const MOST_COLUMNS: usize = 500;
/// Rows at the bottom in which a dialog's hint is looked for.
const BOTTOM: usize = 8;

/// The last rows of the screen, bounded, without the blank ones at its end.
pub(crate) fn bounded<'a>(rows: &[&'a str]) -> Vec<&'a str> {
    let mut kept: Vec<&str> = rows
        .iter()
        .rev()
        .map(|row| cut(row).trim_end())
        .skip_while(|row| row.is_empty())
        .take(MOST_ROWS)
        .collect();
    kept.reverse();
    kept
}

fn cut(row: &str) -> &str {
    row.char_indices()
        .nth(MOST_COLUMNS)
        .map_or(row, |(end, _)| &row[..end])
}

/// The last rows that say something.
pub(crate) fn bottom<'r, 'a>(rows: &'r [&'a str]) -> &'r [&'a str] {
    let mut left = BOTTOM;
    let mut from = rows.len();
    while from > 0 && left > 0 {
        from -= 1;
        left -= usize::from(has_word(rows[from]));
    }
    &rows[from..]
}

/// The last paragraph: what follows the last blank row before the last row that says something.
pub(crate) fn paragraph<'r, 'a>(rows: &'r [&'a str]) -> &'r [&'a str] {
    let Some(last) = rows.iter().rposition(|row| has_word(row)) else {
        return &[];
    };
    let from = rows[..last]
        .iter()
        .rposition(|row| !has_word(row))
        .map_or(0, |blank| blank + 1);
    &rows[from..=last]
}

/// Whether a row holds more than lines, boxes and spaces.
pub(crate) fn has_word(row: &str) -> bool {
    row.chars().any(char::is_alphanumeric)
}

/// A row as it is told: trimmed, without control characters, at most 200 characters.
pub(crate) fn told(row: &str) -> String {
    row.trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_rows_at_the_end_and_what_is_too_much_are_left_out() {
        let long = "é".repeat(MOST_COLUMNS + 5);
        let mut rows = vec![long.as_str(); MOST_ROWS + 7];
        rows.extend(["last  ", "", "   "]);
        let kept = bounded(&rows);
        assert_eq!(kept.len(), MOST_ROWS);
        assert_eq!(kept[MOST_ROWS - 1], "last");
        assert_eq!(kept[0].chars().count(), MOST_COLUMNS);
    }

    #[test]
    fn the_last_paragraph_ends_with_the_last_words() {
        assert_eq!(paragraph(&["a", "", "b", "c", "────", ""]), ["b", "c"]);
        assert_eq!(paragraph(&["", "──"]), [""; 0]);
        assert_eq!(paragraph(&["a"]), ["a"]);
    }
}
