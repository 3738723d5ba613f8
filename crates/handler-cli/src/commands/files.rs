//! `handler sandbox files`, and how paths inside are written.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use handler_types::guest::{FileEntry, FileKind};

/// Splits SANDBOX:PATH; none for anything else, such as a path here.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
        .filter(|(sandbox, path)| !sandbox.contains('/') && !path.is_empty())
}

/// What an entry is and its permission bits, as `ls` has them.
pub(super) fn bits(entry: &FileEntry) -> String {
    let kind = match entry.kind {
        FileKind::Folder => "d",
        FileKind::Link => "l",
        FileKind::File => "-",
        FileKind::Other => "?",
    };
    format!("{kind}{:04o}", entry.mode & 0o7777)
}

/// Lists a folder.
///
/// # Errors
/// [`Failure`].
pub async fn list(at: &str, depth: u32, context: &Context) -> Outcome {
    let (sandbox, path) =
        split(at).ok_or_else(|| Failure::Usage("write SANDBOX:PATH, e.g. box:/tmp".into()))?;
    let listing = context.client()?.list_dir(sandbox, path, depth).await?;
    context.out.show(&listing, |out, listing| {
        let rows: Vec<Vec<String>> = listing
            .entries
            .iter()
            .map(|e| vec![bits(e), e.size.to_string(), e.path.clone()])
            .collect();
        out.table(&["MODE", "SIZE", "PATH"], &rows);
        if listing.truncated {
            out.note("more entries exist than are listed");
        }
    });
    Ok(0)
}
