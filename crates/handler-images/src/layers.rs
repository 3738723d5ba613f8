//! Layers on the disk: unpacked once, taken by many images, gone when the last one is.
//!
//! A layer is *reserved* while somebody unpacks it or is about to write an image down that has it; what is
//! reserved is never collected, and of two who want the same layer one unpacks and the other waits.

use crate::digest::Digest;
use crate::folders::{Folders, Staging};
use crate::record::Records;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Which layers somebody works on, and how big those of this run are.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    turns: HashMap<Digest, Arc<tokio::sync::Mutex<()>>>,
    bytes: HashMap<Digest, u64>,
}

/// Keeps a layer from being collected for as long as it lives.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) digest: Digest,
}

impl Reserved {
    /// Waits until nobody else unpacks this layer.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The same from a blocking thread.
    pub(crate) fn blocking_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.blocking_lock()
    }
}

impl Layers {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a layer, there or not.
    pub(crate) fn reserve(&self, digest: &Digest) -> Reserved {
        let turn = self
            .table()
            .turns
            .entry(digest.clone())
            .or_default()
            .clone();
        Reserved {
            turn,
            digest: digest.clone(),
        }
    }

    /// Bytes of a layer that is there; ask with its turn taken.
    pub(crate) fn present(
        &self,
        folders: &Folders,
        records: &Mutex<Records>,
        layer: &Reserved,
    ) -> Option<u64> {
        if !folders.layer(&layer.digest).is_dir() {
            return None;
        }
        let known = records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .layer_bytes(&layer.digest);
        known.or_else(|| self.table().bytes.get(&layer.digest).copied())
    }

    /// Makes an unpacked folder the layer: from now on it is there, also after a power cut.
    pub(crate) fn commit(
        &self,
        folders: &Folders,
        staging: &Staging,
        layer: &Reserved,
        bytes: u64,
    ) -> io::Result<()> {
        let made = staging.path().join("layer");
        rustix::fs::syncfs(std::fs::File::open(&made)?)?;
        let place = folders.layer(&layer.digest);
        match std::fs::rename(&made, &place) {
            // Two archives with the same content: the other one was faster.
            Err(_) if place.is_dir() => {}
            renamed => renamed?,
        }
        std::fs::File::open(folders.layers())?.sync_all()?;
        self.table().bytes.insert(layer.digest.clone(), bytes);
        Ok(())
    }

    /// Moves away all layers that no image has and nobody works on; they are removed with what is returned.
    pub(crate) fn collect(&self, folders: &Folders, records: &Records) -> io::Result<Staging> {
        let staging = folders.staging()?;
        let mut table = self.table();
        table.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        for entry in std::fs::read_dir(folders.layers())?.flatten() {
            let name = entry.file_name();
            let digest = name.to_str().and_then(Digest::from_hex);
            let is_needed = digest
                .as_ref()
                .is_some_and(|digest| records.uses(digest) || table.turns.contains_key(digest));
            if is_needed {
                continue;
            }
            std::fs::rename(entry.path(), staging.path().join(&name))?;
            if let Some(digest) = digest {
                table.bytes.remove(&digest);
            }
        }
        Ok(staging)
    }
}
