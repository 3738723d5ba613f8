//! A store in a folder of its own, and what it said.

use handler_engine::images::{ImageError, ImageStore as _, Lines};
use handler_images::{Store, StoreConfig};
use handler_types::image::ImageConfig;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) cancel: CancellationToken,
}

/// Whether lines hold what they must not: control characters.
fn listen() -> (Lines, tokio::task::JoinHandle<Vec<String>>) {
    let (lines, mut heard) = mpsc::channel(4);
    let task = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(line) = heard.recv().await {
            all.push(line);
        }
        all
    });
    (lines, task)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut StoreConfig)) -> Self {
        let folder = tempfile::tempdir().expect("temp");
        let mut config = config(folder.path());
        change(&mut config);
        let store = Store::open(config).expect("opens");
        Self {
            folder,
            store,
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        path
    }

    pub(crate) async fn import(
        &self,
        archive: &[u8],
        name: Option<&str>,
    ) -> Result<String, ImageError> {
        let path = self.write("archive", archive);
        let (lines, heard) = listen();
        let done = self
            .store
            .import(&path, name, &ImageConfig::default(), &lines, &self.cancel)
            .await;
        drop(lines);
        check(&heard.await.expect("heard"));
        done
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<String, ImageError> {
        let (lines, heard) = listen();
        let done = self.store.pull(name, &lines, &self.cancel).await;
        drop(lines);
        check(&heard.await.expect("heard"));
        done
    }

    /// Names in a folder of the store.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.folder.path().join("images").join(folder))
    }

    /// Nothing half-made is left.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.names("staging"), [""; 0]);
        assert_eq!(self.names("blobs"), [""; 0]);
    }
}

fn check(lines: &[String]) {
    assert!(
        lines.iter().all(|line| !line.contains(char::is_control)),
        "{lines:?}"
    );
}

pub(crate) fn config(folder: &Path) -> StoreConfig {
    StoreConfig {
        folder: folder.join("images"),
        ..StoreConfig::default()
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("reads").flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("packs");
    encoder.finish().expect("packs")
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 1).expect("packs")
}
