//! Archives on their way into an engine: looked at before they are sent, then streamed from disk.

use bytes::Bytes;
use flate2::read::GzDecoder;
use handler_engine::images::ImageError;
use http_body_util::StreamBody;
use hyper::body::Frame;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use tokio::io::AsyncReadExt as _;

/// Refuses what is no tar archive (plain or gzip).
pub(super) async fn check(path: &Path) -> Result<(), ImageError> {
    let path = path.to_owned();
    let first = tokio::task::spawn_blocking(move || first_block(&path)).await;
    let first = first.map_err(|_| ImageError::Failed("reading the archive ended early".into()))?;
    let is_archive = first
        .map_err(|error| ImageError::Invalid(format!("the archive cannot be read: {error}")))?
        .is_some_and(|block| is_tar_header(&block));
    if is_archive {
        return Ok(());
    }
    Err(ImageError::Invalid(
        "this is no tar archive (plain or gzip); make one with `tar -C FOLDER -cf FILE .`"
            .to_owned(),
    ))
}

/// The first 512 bytes of the archive; none: it is shorter.
fn first_block(path: &Path) -> std::io::Result<Option<[u8; 512]>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    let is_gzip = file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
    let file = File::open(path)?;
    let mut block = [0; 512];
    let got = if is_gzip {
        GzDecoder::new(file).read_exact(&mut block)
    } else {
        let mut file = file;
        file.read_exact(&mut block)
    };
    match got {
        Ok(()) => Ok(Some(block)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) if is_gzip && error.kind() == std::io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a block is a header: its checksum fits.
fn is_tar_header(block: &[u8; 512]) -> bool {
    let field = &block[148..156];
    let digits: String = field
        .iter()
        .map(|b| char::from(*b))
        .filter(|c| ('0'..='7').contains(c))
        .collect();
    let Ok(stated) = u64::from_str_radix(&digits, 8) else {
        return false;
    };
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            if (148..156).contains(&at) {
                32
            } else {
                u64::from(*byte)
            }
        })
        .sum();
    stated == sum
}

/// A file as a request's body.
pub(super) async fn body(
    path: &Path,
) -> Result<impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static, ImageError>
{
    let file = tokio::fs::File::open(path).await.map_err(|error| {
        ImageError::Invalid(format!("{} cannot be read: {error}", path.display()))
    })?;
    let pieces = futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; 128 * 1024];
        let got = file.read(&mut piece).await?;
        piece.truncate(got);
        Ok::<_, std::io::Error>((got > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
    });
    Ok(StreamBody::new(Box::pin(pieces)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// An archive with one empty file.
    fn tar() -> Vec<u8> {
        let mut block = [0u8; 512];
        block[0] = b'a';
        block[156] = b'0';
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut all = block.to_vec();
        all.extend([0; 1024]);
        all
    }

    #[tokio::test]
    async fn plain_and_gzip_archives_pass_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zipped.write_all(&tar()).unwrap();
        for good in [tar(), zipped.finish().unwrap()] {
            std::fs::write(&path, good).unwrap();
            check(&path).await.unwrap();
        }
        let mut broken = tar();
        broken[3] = b'x';
        let half_a_gzip = vec![0x1f, 0x8b, 8, 0, 0];
        for bad in [
            Vec::new(),
            vec![0; 4096],
            b"PK\x03\x04".to_vec(),
            broken,
            half_a_gzip,
            vec![b'7'; 600],
        ] {
            std::fs::write(&path, bad).unwrap();
            let error = check(&path).await.unwrap_err();
            assert!(matches!(error, ImageError::Invalid(_)), "{error}");
        }
        assert!(check(&dir.path().join("none")).await.is_err());
    }
}
