//! What is known of each image, and the names: small files, replaced whole.

use crate::config::OciConfig;
use crate::digest::Digest;
use crate::folders::Folders;
use handler_types::image::ImageConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// One image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Digest of its configuration.
    pub(crate) id: Digest,
    /// Its layers, the lowest first.
    pub(crate) layers: Vec<LayerUse>,
    /// What counts of its configuration.
    pub(crate) config: ImageConfig,
    /// RFC 3339, as its maker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<String>,
    /// `linux/amd64`.
    pub(crate) platform: String,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LayerUse {
    /// Digest of its plain archive.
    pub(crate) digest: Digest,
    /// Bytes of its files.
    pub(crate) bytes: u64,
}

impl Record {
    pub(crate) fn new(id: Digest, config: &OciConfig, layers: Vec<LayerUse>) -> Self {
        let is_time = |text: &String| handler_base::clock::parse_rfc3339(text).is_some();
        Self {
            id,
            layers,
            config: config.summary(),
            created_at: config.created.clone().filter(is_time),
            platform: config.platform(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes).sum()
    }
}

/// All images and names, as they are on the disk.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) images: BTreeMap<Digest, Record>,
    /// Stored name → id.
    pub(crate) names: BTreeMap<String, Digest>,
}

impl Records {
    /// Reads them; a file that cannot be read is said in the log and left alone.
    pub(crate) fn read(folders: &Folders) -> io::Result<Self> {
        let mut images = BTreeMap::new();
        for entry in std::fs::read_dir(folders.images())?.flatten() {
            let path = entry.path();
            let read = std::fs::read(&path)
                .and_then(|bytes| Ok(serde_json::from_slice::<Record>(&bytes)?));
            match read {
                Ok(record) => {
                    images.insert(record.id.clone(), record);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an image's record cannot be read");
                }
            }
        }
        let mut names: BTreeMap<String, Digest> = match std::fs::read(folders.names()) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        names.retain(|_, id| images.contains_key(id));
        Ok(Self { images, names })
    }

    /// Writes an image down; its layers are there already.
    pub(crate) fn add(&mut self, folders: &Folders, record: Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&record)?;
        handler_base::fs::write_atomic(&folders.image(&record.id), &text, 0o600)?;
        self.images.insert(record.id.clone(), record);
        Ok(())
    }

    /// Gives a name, taking it from whatever had it.
    pub(crate) fn name(&mut self, folders: &Folders, name: String, id: &Digest) -> io::Result<()> {
        let mut names = self.names.clone();
        names.insert(name, id.clone());
        self.write_names(folders, names)
    }

    /// Takes names away.
    pub(crate) fn unname(
        &mut self,
        folders: &Folders,
        gone: impl Fn(&str, &Digest) -> bool,
    ) -> io::Result<()> {
        let mut names = self.names.clone();
        names.retain(|name, id| !gone(name, id));
        self.write_names(folders, names)
    }

    fn write_names(
        &mut self,
        folders: &Folders,
        names: BTreeMap<String, Digest>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&names)?;
        handler_base::fs::write_atomic(&folders.names(), &text, 0o600)?;
        self.names = names;
        Ok(())
    }

    /// Forgets an image; its layers are collected afterwards.
    pub(crate) fn forget(&mut self, folders: &Folders, id: &Digest) -> io::Result<()> {
        self.unname(folders, |_, named| named == id)?;
        match std::fs::remove_file(folders.image(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.images.remove(id);
        Ok(())
    }

    /// Whether some image has this layer.
    pub(crate) fn uses(&self, layer: &Digest) -> bool {
        let has = |record: &Record| record.layers.iter().any(|other| other.digest == *layer);
        self.images.values().any(has)
    }

    /// Bytes of a layer that some image has.
    pub(crate) fn layer_bytes(&self, layer: &Digest) -> Option<u64> {
        let mut all = self.images.values().flat_map(|record| &record.layers);
        all.find(|other| other.digest == *layer)
            .map(|other| other.bytes)
    }

    /// Stored names of an image.
    pub(crate) fn names_of(&self, id: &Digest) -> Vec<&str> {
        let fitting = self.names.iter().filter(|(_, named)| *named == id);
        fitting.map(|(name, _)| name.as_str()).collect()
    }
}
