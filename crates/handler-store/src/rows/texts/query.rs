//! What a person types to search, as an expression of SQLite's full-text index. Nothing typed can be a wrong one.

/// Most words of a search.
const MOST_WORDS: usize = 16;

/// All words must be there, the last one may go on; words in double quotes stand together. None: nothing to look for.
pub(super) fn expression(typed: &str) -> Option<String> {
    let mut phrases = Vec::new();
    // Every second part stands between quotes.
    for (at, part) in typed.split('"').enumerate() {
        if at % 2 == 1 {
            phrases.push(part);
        } else {
            phrases.extend(part.split_whitespace());
        }
    }
    phrases.retain(|phrase| phrase.chars().any(char::is_alphanumeric));
    phrases.truncate(MOST_WORDS);
    let goes_on = !typed.trim_end().ends_with('"');
    let last = phrases.len().checked_sub(1)?;
    let quoted = phrases.iter().enumerate().map(|(at, phrase)| {
        let open = if at == last && goes_on { " *" } else { "" };
        format!("\"{phrase}\"{open}")
    });
    Some(quoted.collect::<Vec<_>>().join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_and_phrases_become_an_expression() {
        for (typed, expected) in [
            ("flag", Some(r#""flag" *"#)),
            ("the  flag", Some(r#""the" AND "flag" *"#)),
            (r#""the flag" list"#, Some(r#""the flag" AND "list" *"#)),
            (r#""the flag""#, Some(r#""the flag""#)),
            ("NOT a OR b*", Some(r#""NOT" AND "a" AND "OR" AND "b*" *"#)),
            ("text:x -y", Some(r#""text:x" AND "-y" *"#)),
            ("--- \"\" *", None),
            ("", None),
        ] {
            assert_eq!(expression(typed).as_deref(), expected, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_typed_can_be_asked(typed in "\\PC{0,60}|[\"*()^:+-a ]{0,20}") {
            let db = rusqlite::Connection::open_in_memory().expect("memory");
            db.execute_batch("CREATE VIRTUAL TABLE t USING fts5 (text)").expect("table");
            if let Some(expression) = expression(&typed) {
                let found: rusqlite::Result<u32> =
                    db.query_row("SELECT count(*) FROM t WHERE t MATCH ?1", [expression], |row| row.get(0));
                prop_assert_eq!(found.expect("a right expression"), 0);
            }
        }
    }
}
