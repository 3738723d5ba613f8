//! Contexts of builds as tar archives: made from files in memory, looked into for the recipe.

use handler_engine::images::ImageError;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Entries looked at for a recipe.
const MOST_ENTRIES: usize = 200_000;

/// Writes an archive of regular files at `path`. The same files give the same bytes.
///
/// # Errors
/// A disk that does not take it.
pub fn pack<'a>(
    path: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>,
) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(std::fs::File::create(path)?);
    for (name, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()?.sync_data()
}

/// The recipe at the root of an archive: `Containerfile`, else `Dockerfile`.
///
/// # Errors
/// None is there; no archive.
pub async fn recipe_in(path: PathBuf) -> Result<String, ImageError> {
    let found = tokio::task::spawn_blocking(move || look(&path)).await;
    found
        .map_err(|_| ImageError::Failed("reading the context ended early".to_owned()))?
        .map_err(|error| ImageError::Invalid(format!("the context is no tar archive: {error}")))?
        .map(str::to_owned)
        .ok_or_else(|| {
            ImageError::Invalid(
                "the context has no Containerfile and no Dockerfile at its root; name the recipe"
                    .to_owned(),
            )
        })
}

fn look(path: &Path) -> std::io::Result<Option<&'static str>> {
    let mut magic = [0; 2];
    let is_gzip = std::fs::File::open(path)?.read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
    let file = std::fs::File::open(path)?;
    let reader: Box<dyn Read> = if is_gzip {
        Box::new(flate2::read::GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut archive = tar::Archive::new(reader);
    let mut second = None;
    for entry in archive.entries()?.take(MOST_ENTRIES) {
        let entry = entry?;
        let name = entry.path_bytes();
        match name.strip_prefix(b"./").unwrap_or(&name) {
            b"Containerfile" => return Ok(Some("Containerfile")),
            b"Dockerfile" => second = Some("Dockerfile"),
            _ => {}
        }
    }
    Ok(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_packed_context_holds_its_files_and_its_recipe_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("c.tar");
        pack(&path, [("Dockerfile", b"a".as_slice(), 0o644)]).expect("packed");
        assert_eq!(recipe_in(path.clone()).await.expect("found"), "Dockerfile");
        let files = [
            ("Dockerfile", b"a".as_slice(), 0o644),
            ("x/run.sh", b"b", 0o755),
            ("Containerfile", b"c", 0o644),
        ];
        pack(&path, files).expect("packed");
        assert_eq!(
            recipe_in(path.clone()).await.expect("found"),
            "Containerfile"
        );
        let mut archive = tar::Archive::new(std::fs::File::open(&path).expect("open"));
        let modes: Vec<u32> = archive
            .entries()
            .expect("entries")
            .map(|e| e.expect("entry").header().mode().expect("mode"))
            .collect();
        assert_eq!(modes, [0o644, 0o755, 0o644]);
        pack(&path, []).expect("packed");
        assert!(recipe_in(path.clone()).await.is_err());
        std::fs::write(&path, vec![b'x'; 2000]).expect("written");
        assert!(recipe_in(path).await.is_err());
    }
}
