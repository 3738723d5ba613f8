//! Archives people import: a root file system, or an image as `docker save`, `podman save` or an OCI layout write it.
//!
//! An image archive is read in several passes, since its parts come in any order; a packed one is unpacked
//! into staging first. A root file system is read once, straight into the layer's folder.

use crate::config::MAX_CONFIG;
use crate::decompress::{Cancellable, Packing, packing_of, plain};
use crate::digest::Digest;
use crate::error::io_error;
use crate::folders::Staging;
use crate::manifest::{self, MAX_MANIFEST};
use crate::tar::{Kind, Reader, TarError};
use handler_engine::images::ImageError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use tokio_util::sync::CancellationToken;

/// Folders at the top of a root file system, and never of an image archive.
const ROOT_FOLDERS: [&str; 14] = [
    "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "sbin",
    "usr", "var",
];
/// Most entries of an image archive.
const MAX_ENTRIES: usize = 10_000;
/// Bytes of a packed image archive once unpacked.
const MAX_BYTES: u64 = 128 << 30;

/// What an archive holds.
pub(crate) enum Found {
    /// A root file system.
    RootFs,
    /// An image, ready to be read.
    Image(ImageArchive),
}

/// An image in an archive on the disk.
pub(crate) struct ImageArchive {
    file: File,
    parts: Parts,
    /// The configuration as it stands in the archive.
    pub(crate) config: Vec<u8>,
    /// Its digest.
    pub(crate) id: Digest,
    /// Names the archive gives the image.
    pub(crate) names: Vec<String>,
    /// Where the layers are, the lowest first.
    layers: Vec<String>,
}

/// Name → where its content starts, and its length.
type Parts = BTreeMap<String, (u64, u64)>;

/// Looks into an archive.
pub(crate) fn open(
    mut file: File,
    staging: &Staging,
    cancel: &CancellationToken,
) -> Result<Found, ImageError> {
    let unreadable = |error: io::Error| io_error("read the archive", &error);
    let packing = packing_of(&mut file).map_err(unreadable)?;
    let archive = Cancellable::new(&mut file, cancel);
    let Some(parts) = list(plain(archive, packing).map_err(unreadable)?, cancel)? else {
        return Ok(Found::RootFs);
    };
    if !parts.contains_key("manifest.json") && !parts.contains_key("index.json") {
        return Ok(Found::RootFs);
    }
    if packing != Packing::Plain {
        file = unpacked(&mut file, packing, staging, cancel)?;
    }
    image(file, parts).map(Found::Image)
}

/// All plain files by name; `None`: it is a root file system.
fn list(archive: impl Read, cancel: &CancellationToken) -> Result<Option<Parts>, ImageError> {
    let mut reader = Reader::new(Counting {
        inner: archive,
        count: 0,
    });
    let mut parts = Parts::new();
    loop {
        let entry = reader.next().map_err(|error| damaged(error, cancel))?;
        let Some(entry) = entry else {
            return Ok(Some(parts));
        };
        let name = String::from_utf8_lossy(&entry.path);
        let name = name.trim_start_matches("./").trim_start_matches('/');
        let top = name.split('/').next().unwrap_or_default();
        if ROOT_FOLDERS.contains(&top) || parts.len() >= MAX_ENTRIES {
            return Ok(None);
        }
        if entry.kind == Kind::File {
            parts.insert(name.to_owned(), (reader.position(), entry.size));
        }
    }
}

fn unpacked(
    file: &mut File,
    packing: Packing,
    staging: &Staging,
    cancel: &CancellationToken,
) -> Result<File, ImageError> {
    let failed = |error: io::Error| {
        if cancel.is_cancelled() {
            ImageError::Cancelled
        } else {
            io_error("unpack the archive", &error)
        }
    };
    file.rewind().map_err(failed)?;
    let path = staging.path().join("archive.tar");
    let mut options = std::fs::OpenOptions::new();
    let mut whole = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(failed)?;
    let archive = plain(Cancellable::new(file, cancel), packing).map_err(failed)?;
    let copied = io::copy(&mut archive.take(MAX_BYTES), &mut whole).map_err(failed)?;
    if copied == MAX_BYTES {
        return Err(ImageError::Invalid("the archive is far too big".to_owned()));
    }
    whole.flush().map_err(failed)?;
    Ok(whole)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

fn image(mut file: File, parts: Parts) -> Result<ImageArchive, ImageError> {
    // What `docker save` writes has both; its own list names the tags.
    let saved = if parts.contains_key("manifest.json") {
        docker(&mut file, &parts)?
    } else {
        layout(&mut file, &parts)?
    };
    let config = small(&mut file, &parts, &saved.config, MAX_CONFIG)?;
    Ok(ImageArchive {
        id: Digest::of(&config),
        config,
        names: saved.repo_tags.unwrap_or_default(),
        layers: saved.layers,
        file,
        parts,
    })
}

fn docker(file: &mut File, parts: &Parts) -> Result<Saved, ImageError> {
    let text = small(file, parts, "manifest.json", MAX_MANIFEST)?;
    let mut all: Vec<Saved> = serde_json::from_slice(&text).map_err(|error| crooked(&error))?;
    match (all.pop(), all.len()) {
        (Some(one), 0) => Ok(one),
        (_, more) => Err(ImageError::Invalid(format!(
            "the archive holds {} images; save one at a time",
            if more == 0 { 0 } else { more + 1 }
        ))),
    }
}

/// An OCI layout: index → manifest → configuration and layers, each checked against its digest.
fn layout(file: &mut File, parts: &Parts) -> Result<Saved, ImageError> {
    let mut text = small(file, parts, "index.json", MAX_MANIFEST)?;
    let mut tag = None;
    for _depth in 0..3 {
        match manifest::parse(&text).map_err(ImageError::Invalid)? {
            manifest::Manifest::Index(index) => {
                let chosen = index.choose().map_err(ImageError::Invalid)?;
                tag = tag.or_else(|| chosen.name().map(str::to_owned));
                text = blob(file, parts, &chosen.digest, MAX_MANIFEST)?;
            }
            manifest::Manifest::Image(image) => {
                let path = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
                blob(file, parts, &image.config.digest, MAX_CONFIG)?;
                return Ok(Saved {
                    config: path(&image.config.digest),
                    repo_tags: tag.map(|tag| vec![tag]),
                    layers: image
                        .layers
                        .iter()
                        .map(|layer| path(&layer.digest))
                        .collect(),
                });
            }
        }
    }
    Err(ImageError::Invalid(
        "the archive's indexes lead nowhere".to_owned(),
    ))
}

fn blob(file: &mut File, parts: &Parts, digest: &Digest, most: u64) -> Result<Vec<u8>, ImageError> {
    let bytes = small(file, parts, &format!("blobs/sha256/{}", digest.hex()), most)?;
    if Digest::of(&bytes) == *digest {
        Ok(bytes)
    } else {
        Err(ImageError::Invalid(format!(
            "{digest} in the archive is not what its digest says"
        )))
    }
}

fn small(file: &mut File, parts: &Parts, name: &str, most: u64) -> Result<Vec<u8>, ImageError> {
    let (start, size) = *parts.get(name).ok_or_else(|| missing(name))?;
    if size > most {
        return Err(ImageError::Invalid(format!(
            "`{name}` in the archive is far too long"
        )));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.take(size).read_to_end(&mut bytes))
        .map_err(|error| io_error("read the archive", &error))?;
    Ok(bytes)
}

impl ImageArchive {
    pub(crate) fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// The packed stream of a layer.
    pub(crate) fn layer(&mut self, number: usize) -> Result<(impl Read + '_, Packing), ImageError> {
        let name = self.layers.get(number).ok_or_else(|| missing("a layer"))?;
        let (start, size) = *self.parts.get(name).ok_or_else(|| missing(name))?;
        let unreadable = |error: io::Error| io_error("read the archive", &error);
        self.file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        let mut first = [0; 4];
        let mut file = &self.file;
        let read = file.read(&mut first).map_err(unreadable)?;
        self.file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        let packing = Packing::of(&first[..read]);
        Ok(((&self.file).take(size), packing))
    }
}

fn missing(name: &str) -> ImageError {
    let name: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
    ImageError::Invalid(format!("`{name}` is missing in the archive"))
}

fn crooked(error: &serde_json::Error) -> ImageError {
    ImageError::Invalid(format!("the archive's manifest cannot be read: {error}"))
}

fn damaged(error: TarError, cancel: &CancellationToken) -> ImageError {
    if cancel.is_cancelled() {
        ImageError::Cancelled
    } else {
        ImageError::Invalid(format!("the archive cannot be read: {error}"))
    }
}

/// Knows how much was read.
pub(crate) struct Counting<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.count += read as u64;
        Ok(read)
    }
}

impl<R: Read> Reader<Counting<R>> {
    /// Where the content of the present entry starts; asked before any of it is read.
    fn position(&self) -> u64 {
        self.input().count
    }
}
