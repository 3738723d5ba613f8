//! Carries a channel and a byte stream into each other, each direction to its own end.

use crate::input::{Input, Taken};
use russh::ChannelWriteHalf;
use russh::server::Msg;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;

/// Runs until both directions ended or one broke; the channel is then closed. `status` is the exit status told at
/// the stream's end: `scp` takes a subsystem that ends without one for a failure.
pub(crate) async fn carry<S>(
    input: &Input,
    channel: ChannelWriteHalf<Msg>,
    stream: S,
    status: Option<u32>,
) where
    S: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let to_stream = async {
        loop {
            match input.take().await {
                Taken::Bytes(bytes) => {
                    writer.write_all(&bytes).await?;
                    writer.flush().await?;
                }
                Taken::End => return writer.shutdown().await,
            }
        }
    };
    let to_channel = async {
        let mut block = vec![0; BLOCK];
        loop {
            let count = reader.read(&mut block).await?;
            if count == 0 {
                if let Some(status) = status {
                    channel
                        .exit_status(status)
                        .await
                        .map_err(io::Error::other)?;
                }
                return channel.eof().await.map_err(io::Error::other);
            }
            channel
                .data(&block[..count])
                .await
                .map_err(io::Error::other)?;
        }
    };
    // A side that broke (not: ended) has nobody left to speak to.
    if let Err(error) = tokio::try_join!(to_stream, to_channel) {
        tracing::debug!(%error, "a stream of an SSH client broke");
    }
    input.close();
    channel.close().await.ok();
}
