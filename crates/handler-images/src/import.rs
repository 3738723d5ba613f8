//! From an archive on the disk to an image.

use crate::archive::{self, Found, ImageArchive};
use crate::config::OciConfig;
use crate::decompress::{Cancellable, Packing, packing_of, plain};
use crate::digest::{Digest, Hashing};
use crate::error::{io_error, unpack_error};
use crate::folders::Staging;
use crate::layers::Reserved;
use crate::record::{LayerUse, Record};
use crate::say::{say_blocking, size};
use crate::store::{Inner, stored_name};
use crate::unpack::{Limits, Unpacked, unpack};
use handler_engine::images::{ImageError, Lines};
use handler_types::image::ImageConfig;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One import; runs on a blocking thread.
pub(crate) struct Import {
    pub(crate) path: PathBuf,
    /// As it is stored.
    pub(crate) name: Option<String>,
    pub(crate) config: ImageConfig,
    pub(crate) lines: Lines,
    pub(crate) cancel: CancellationToken,
}

impl Import {
    pub(crate) fn run(self, inner: &Arc<Inner>) -> Result<Digest, ImageError> {
        inner.hold()?;
        let done = self.import(inner);
        if done.is_err()
            && let Err(error) = inner.collect()
        {
            tracing::warn!(%error, "layers of a failed import stay until the next start");
        }
        done
    }

    fn import(&self, inner: &Inner) -> Result<Digest, ImageError> {
        let unreadable =
            |error: io::Error| ImageError::Invalid(format!("{}: {error}", self.path.display()));
        let file = open_file(&self.path).map_err(unreadable)?;
        let staging = inner.staging()?;
        let copy = file.try_clone().map_err(unreadable)?;
        match archive::open(copy, &staging, &self.cancel)? {
            Found::RootFs => self.root_fs(inner, &staging, file),
            Found::Image(archive) => self.image(inner, archive),
        }
    }

    fn root_fs(
        &self,
        inner: &Inner,
        staging: &Staging,
        mut file: File,
    ) -> Result<Digest, ImageError> {
        say_blocking(&self.lines, "unpacking the root file system");
        let unreadable = |error: io::Error| io_error("read the archive", &error);
        let packing = packing_of(&mut file).map_err(unreadable)?;
        let (digest, unpacked) = unpack_into(staging, file, packing, &self.cancel)?;
        self.say_unpacked(unpacked);
        let layer = inner.layers.reserve(&digest);
        {
            let _turn = layer.blocking_turn();
            inner
                .layers
                .commit(&inner.folders, staging, &layer, unpacked.bytes)
                .map_err(|error| io_error("keep the layer", &error))?;
        }
        // The same archive with the same settings is the same image, whenever it is imported.
        let config = OciConfig::for_layer(&digest, &self.config);
        let text =
            serde_json::to_vec(&config).map_err(|error| ImageError::Failed(error.to_string()))?;
        let layers = vec![LayerUse {
            digest,
            bytes: unpacked.bytes,
        }];
        let mut record = Record::new(Digest::of(&text), &config, layers);
        record.created_at = Some(handler_base::clock::rfc3339(handler_base::clock::now_ms()));
        self.keep(inner, record, Vec::new(), &[layer])
    }

    fn image(&self, inner: &Inner, mut archive: ImageArchive) -> Result<Digest, ImageError> {
        let config = OciConfig::parse(&archive.config).map_err(ImageError::Invalid)?;
        let digests = config.layers().to_vec();
        if digests.len() != archive.layer_count() {
            return Err(ImageError::Invalid(
                "the archive has not as many layers as its configuration says".to_owned(),
            ));
        }
        let mut layers = Vec::new();
        let mut reserved = Vec::new();
        for (number, digest) in digests.iter().enumerate() {
            say_blocking(
                &self.lines,
                &format!("layer {} of {}", number + 1, digests.len()),
            );
            let layer = inner.layers.reserve(digest);
            let (stream, packing) = archive.layer(number)?;
            let bytes = add_layer(inner, &layer, stream, packing, &self.cancel)?;
            layers.push(LayerUse {
                digest: digest.clone(),
                bytes,
            });
            reserved.push(layer);
        }
        let given = archive
            .names
            .iter()
            .filter_map(|name| stored_name(name).ok());
        let record = Record::new(archive.id.clone(), &config, layers);
        self.keep(inner, record, given.collect(), &reserved)
    }

    fn keep(
        &self,
        inner: &Inner,
        record: Record,
        given: Vec<String>,
        layers: &[Reserved],
    ) -> Result<Digest, ImageError> {
        if self.cancel.is_cancelled() {
            return Err(ImageError::Cancelled);
        }
        let names = self.name.clone().map_or(given, |name| vec![name]);
        let (id, bytes) = (record.id.clone(), record.bytes());
        inner.add(record, &names, layers)?;
        say_blocking(&self.lines, &format!("{id}, {}", size(bytes)));
        Ok(id)
    }

    fn say_unpacked(&self, unpacked: Unpacked) {
        if unpacked.left_out > 0 {
            let text = format!("{} devices and pipes were left out", unpacked.left_out);
            say_blocking(&self.lines, &text);
        }
    }
}

/// Makes sure that a layer is there: unpacks it when nobody did yet, and checks its digest. Answers its size.
pub(crate) fn add_layer(
    inner: &Inner,
    layer: &Reserved,
    stream: impl Read,
    packing: Packing,
    cancel: &CancellationToken,
) -> Result<u64, ImageError> {
    let _turn = layer.blocking_turn();
    if let Some(bytes) = inner.layers.present(&inner.folders, &inner.records, layer) {
        return Ok(bytes);
    }
    let staging = inner.staging()?;
    let (digest, unpacked) = unpack_into(&staging, stream, packing, cancel)?;
    if digest != layer.digest {
        return Err(ImageError::Invalid(format!(
            "a layer is not what its digest says: {} was promised, {digest} came",
            layer.digest
        )));
    }
    inner
        .layers
        .commit(&inner.folders, &staging, layer, unpacked.bytes)
        .map_err(|error| io_error("keep the layer", &error))?;
    Ok(unpacked.bytes)
}

/// Unpacks into `layer` of the staging folder; answers the digest of the plain archive.
fn unpack_into(
    staging: &Staging,
    stream: impl Read,
    packing: Packing,
    cancel: &CancellationToken,
) -> Result<(Digest, Unpacked), ImageError> {
    let failed = |error: io::Error| io_error("unpack a layer", &error);
    let folder = staging.path().join("layer");
    std::fs::create_dir(&folder).map_err(failed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, &folder, flags, Mode::empty())
        .map_err(|error| failed(error.into()))?;
    rustix::fs::chmodat(
        CWD,
        &folder,
        Mode::from_raw_mode(0o755),
        rustix::fs::AtFlags::empty(),
    )
    .map_err(|error| failed(error.into()))?;
    let archive = plain(Cancellable::new(stream, cancel), packing).map_err(failed)?;
    let mut archive = Hashing::new(archive);
    let unpacked = unpack(&mut archive, root, Limits::default())
        .map_err(|error| unpack_error(error, cancel))?;
    Ok((archive.digest(), unpacked))
}

/// A plain file; anything else (a pipe, a device) could block or never end.
fn open_file(path: &std::path::Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no plain file",
        ))
    }
}
