//! From a registry to an image: manifest, configuration, then the layers that are not here yet, a few at a time.

use crate::config::{MAX_CONFIG, OciConfig};
use crate::decompress::packing_of;
use crate::digest::Digest;
use crate::error::io_error;
use crate::fetch::{self, Progress};
use crate::import::add_layer;
use crate::layers::Reserved;
use crate::manifest::{self, Descriptor, ImageManifest, MAX_MANIFEST, Manifest};
use crate::name::{Name, familiar};
use crate::record::{LayerUse, Record};
use crate::registry::Registry;
use crate::say::{say, size};
use crate::store::Inner;
use futures::StreamExt as _;
use handler_engine::images::{ImageError, Lines};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Layers fetched at once.
const AT_ONCE: usize = 3;

/// Pulls; answers the image's id.
pub(crate) async fn pull(
    inner: &Arc<Inner>,
    reference: &str,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<Digest, ImageError> {
    let name = Name::parse(reference).map_err(ImageError::Invalid)?;
    // Ends the other layers when one fails, so that nothing goes on in the background.
    let own = cancel.child_token();
    let work = run(inner, &name, lines, &own);
    let done = tokio::select! {
        done = work => done,
        () = gone(cancel) => Err(ImageError::Cancelled),
    };
    if done.is_err() {
        own.cancel();
        let inner = inner.clone();
        let _ = tokio::task::spawn_blocking(move || inner.collect()).await;
    }
    done
}

/// Cancelled, and the work had the time to end by itself.
async fn gone(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
}

async fn run(
    inner: &Arc<Inner>,
    name: &Name,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<Digest, ImageError> {
    let head = async {
        let registry = inner.registries.of(name).await?;
        say(
            lines,
            &format!("asking {} for {}", name.host, name.repository),
        )
        .await;
        let image = image_manifest(&registry, name).await?;
        let config = registry
            .small_blob(&image.config.digest, MAX_CONFIG)
            .await?;
        Ok::<_, ImageError>((registry, image, config))
    };
    let (registry, image, config) = tokio::select! {
        head = head => head?,
        () = cancel.cancelled() => return Err(ImageError::Cancelled),
    };
    let config = OciConfig::parse(&config).map_err(ImageError::Invalid)?;
    let digests = config.layers().to_vec();
    if digests.len() != image.layers.len() {
        return Err(ImageError::Invalid(
            "the image has not as many layers as its configuration says".to_owned(),
        ));
    }
    let pairs: Vec<(Reserved, Descriptor)> = digests
        .iter()
        .map(|digest| inner.layers.reserve(digest))
        .zip(image.layers)
        .collect();
    let reserved: Vec<Reserved> = pairs.iter().map(|(layer, _)| layer.clone()).collect();
    let layers = all_layers(inner, &registry, pairs, lines, cancel).await?;
    let record = Record::new(image.config.digest.clone(), &config, layers);
    keep(inner, name, record, reserved, lines).await
}

/// The manifest for this machine, through at most two indexes.
async fn image_manifest(registry: &Registry, name: &Name) -> Result<ImageManifest, ImageError> {
    let mut reference = name.manifest();
    for _depth in 0..3 {
        let bytes = registry.manifest(&reference, MAX_MANIFEST).await?;
        match manifest::parse(&bytes).map_err(ImageError::Invalid)? {
            Manifest::Image(image) => return Ok(image),
            Manifest::Index(index) => {
                reference = index
                    .choose()
                    .map_err(ImageError::Invalid)?
                    .digest
                    .to_string();
            }
        }
    }
    Err(ImageError::Invalid(
        "the image's indexes lead nowhere".to_owned(),
    ))
}

async fn all_layers(
    inner: &Arc<Inner>,
    registry: &Registry,
    pairs: Vec<(Reserved, Descriptor)>,
    lines: &Lines,
    cancel: &CancellationToken,
) -> Result<Vec<LayerUse>, ImageError> {
    let total = pairs.iter().map(|(_, blob)| blob.size).sum();
    let progress = Progress::new(total, lines.clone());
    let one = |(layer, blob): (Reserved, Descriptor)| {
        let progress = &progress;
        async move {
            let bytes = one_layer(inner, registry, &layer, &blob, progress, cancel).await;
            if bytes.is_err() {
                cancel.cancel();
            }
            Ok(LayerUse {
                digest: layer.digest.clone(),
                bytes: bytes?,
            })
        }
    };
    let done: Vec<Result<LayerUse, ImageError>> = futures::stream::iter(pairs)
        .map(one)
        .buffered(AT_ONCE)
        .collect()
        .await;
    // The failure that ended the others, not one of those it ended.
    let is_cause = |result: &Result<LayerUse, ImageError>| matches!(result, Err(error) if !matches!(error, ImageError::Cancelled));
    if done.iter().any(is_cause) {
        return done.into_iter().filter(is_cause).collect();
    }
    done.into_iter().collect()
}

async fn one_layer(
    inner: &Arc<Inner>,
    registry: &Registry,
    layer: &Reserved,
    blob: &Descriptor,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<u64, ImageError> {
    // One at a time writes the same file, whatever layers it is said to be.
    let file_lock = inner
        .layers
        .reserve(&Digest::of(format!("blob {}", blob.digest).as_bytes()));
    let _turn = file_lock.turn().await;
    if let Some(bytes) = inner.layers.present(&inner.folders, &inner.records, layer) {
        progress.skip(blob.size).await;
        return Ok(bytes);
    }
    let path = fetch::fetch(&inner.folders, registry, blob, progress, cancel).await?;
    let (inner, layer, cancel, file) = (inner.clone(), layer.clone(), cancel.clone(), path.clone());
    let unpack = move || {
        let unreadable = |error: std::io::Error| io_error("read a fetched layer", &error);
        let mut file = std::fs::File::open(&file).map_err(unreadable)?;
        let packing = packing_of(&mut file).map_err(unreadable)?;
        add_layer(&inner, &layer, file, packing, &cancel)
    };
    let unpacked = tokio::task::spawn_blocking(unpack).await;
    // Good or bad, it has had its use.
    tokio::fs::remove_file(&path).await.ok();
    unpacked.map_err(|error| ImageError::Failed(error.to_string()))?
}

async fn keep(
    inner: &Arc<Inner>,
    name: &Name,
    record: Record,
    reserved: Vec<Reserved>,
    lines: &Lines,
) -> Result<Digest, ImageError> {
    let (id, bytes) = (record.id.clone(), record.bytes());
    let names: Vec<String> = name.stored().into_iter().collect();
    let shown = names
        .first()
        .map_or_else(|| id.to_string(), |name| familiar(name).to_owned());
    let inner = inner.clone();
    let add = move || inner.add(record, &names, &reserved);
    tokio::task::spawn_blocking(add)
        .await
        .map_err(|error| ImageError::Failed(error.to_string()))??;
    say(lines, &format!("{shown}: {id}, {}", size(bytes))).await;
    Ok(id)
}
