//! Reads what Git prints for programs. Untrusted: a repository may hold anything; unknown lines are passed over.

use handler_types::git::{GitChange, GitCommit, GitStatus};

/// Most changed paths of an answer.
const MOST_CHANGES: usize = 2000;

/// How commits are asked for: fields apart by 0x1f, commits by NUL (`-z`).
pub(super) const LOG_FORMAT: &str = "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%s%x1f%D";

/// Output of `git status --porcelain=v2 --branch -z`.
pub(super) fn status(text: &str) -> GitStatus {
    let mut status = GitStatus::default();
    let mut records = text.split('\0');
    while let Some(record) = records.next() {
        if let Some(header) = record.strip_prefix("# ") {
            branch(&mut status, header);
            continue;
        }
        let Some(mut change) = change(record) else {
            continue;
        };
        if record.starts_with("2 ") {
            change.from = records.next().map(str::to_owned);
        }
        if status.changes.len() == MOST_CHANGES {
            status.truncated = true;
        } else {
            status.changes.push(change);
        }
    }
    status
}

fn branch(status: &mut GitStatus, header: &str) {
    match header.split_once(' ') {
        Some(("branch.oid", oid)) if oid != "(initial)" => status.head = Some(oid.to_owned()),
        Some(("branch.head", head)) if head != "(detached)" => {
            status.branch = Some(head.to_owned());
        }
        Some(("branch.upstream", upstream)) => status.upstream = Some(upstream.to_owned()),
        Some(("branch.ab", counts)) => {
            let number = |sign| {
                counts
                    .split(' ')
                    .find_map(|part| part.strip_prefix(sign)?.parse().ok())
                    .unwrap_or(0)
            };
            status.ahead = number('+');
            status.behind = number('-');
        }
        _ => {}
    }
}

/// A line of a changed path: its kind, then fixed fields, then the path to the end.
fn change(record: &str) -> Option<GitChange> {
    let (kind, rest) = record.split_once(' ')?;
    let fields_before_path = match kind {
        "1" => 7,
        "2" => 8,
        "u" => 9,
        "?" | "!" => {
            return Some(GitChange {
                path: rest.to_owned(),
                from: None,
                state: kind.repeat(2),
            });
        }
        _ => return None,
    };
    let mut fields = rest.splitn(fields_before_path + 1, ' ');
    let state = fields.next()?.to_owned();
    let path = fields.nth(fields_before_path - 1)?.to_owned();
    Some(GitChange {
        path,
        from: None,
        state,
    })
}

/// Output of `git log -z` in [`LOG_FORMAT`].
pub(super) fn commits(text: &str) -> Vec<GitCommit> {
    text.split('\0').filter_map(commit).collect()
}

fn commit(record: &str) -> Option<GitCommit> {
    let mut fields = record.trim_start_matches('\n').split('\x1f');
    let mut next = || fields.next().map(str::to_owned);
    let id = next().filter(|id| is_id(id))?;
    Some(GitCommit {
        id,
        author: next()?,
        email: next()?,
        at: next()?,
        subject: next()?,
        refs: next()?
            .trim_end()
            .split(", ")
            .map(|name| {
                name.trim_start_matches("HEAD -> ")
                    .trim_start_matches("tag: ")
            })
            .filter(|name| !name.is_empty() && *name != "HEAD")
            .map(str::to_owned)
            .collect(),
    })
}

/// Whether this is a whole object id.
pub(super) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_with_renames_conflicts_and_strange_names() {
        let id = "a".repeat(40);
        let text = [
            format!("# branch.oid {id}"),
            "# branch.head main".into(),
            "# branch.upstream origin/main".into(),
            "# branch.ab +2 -3".into(),
            format!("1 .M N... 100644 100644 100644 {id} {id} a file with spaces"),
            format!("2 R. N... 100644 100644 100644 {id} {id} R100 new name"),
            "old name".into(),
            format!("u UU N... 100644 100644 100644 100644 {id} {id} {id} both\nlines"),
            "? untracked".into(),
            "garbage".into(),
            String::new(),
        ]
        .join("\0");
        let status = status(&text);
        assert_eq!(status.branch.as_deref(), Some("main"));
        assert_eq!((status.ahead, status.behind), (2, 3));
        let seen: Vec<_> = status
            .changes
            .iter()
            .map(|c| (c.state.as_str(), c.path.as_str(), c.from.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                (".M", "a file with spaces", None),
                ("R.", "new name", Some("old name")),
                ("UU", "both\nlines", None),
                ("??", "untracked", None),
            ]
        );
    }

    #[test]
    fn commits_are_read_and_what_is_none_is_passed_over() {
        let id = "0f".repeat(20);
        let text = format!(
            "{id}\x1fAda\x1fada@example.com\x1f2026-01-02T03:04:05+01:00\x1fAdd, it\x1fHEAD -> main, tag: v1\0junk\0\n{id}\x1fx"
        );
        let commits = commits(&text);
        assert_eq!(commits.len(), 1);
        assert_eq!(commits[0].refs, ["main", "v1"]);
        assert_eq!(commits[0].subject, "Add, it");
    }

    #[test]
    fn an_empty_repository_has_no_head() {
        let status = status("# branch.oid (initial)\0# branch.head main\0");
        assert_eq!(
            (status.head, status.branch.as_deref()),
            (None, Some("main"))
        );
    }
}
