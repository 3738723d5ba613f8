//! Looks at everything the guest says on one connection. Whatever makes no sense ends the connection.

use super::connection::Connection;
use super::error::LinkError;
use super::slots::Slots;
use handler_types::frame::{Frame, FrameDecoder};
use handler_types::guest::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at once.
const READ: usize = 32 * 1024;

/// Reads frames from a stream.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    stream: R,
    decoder: FrameDecoder,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream,
            decoder: FrameDecoder::new(),
            buffer: vec![0; READ],
        }
    }

    /// The next frame.
    pub(super) async fn next(&mut self) -> Result<Frame, LinkError> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(frame);
            }
            match self.stream.read(&mut self.buffer).await {
                Ok(0) if self.decoder.is_mid_frame() => {
                    return Err(LinkError::Broken("it ended within a frame".to_owned()));
                }
                Ok(0) => return Err(LinkError::Ended),
                Ok(n) => self.decoder.push(&self.buffer[..n]),
                Err(error) => return Err(LinkError::Broken(error.to_string())),
            }
        }
    }

    /// The next message.
    pub(super) async fn next_message(&mut self) -> Result<Message, LinkError> {
        match self.next().await? {
            Frame::Json(document) => parse(&document),
            _ => Err(LinkError::Nonsense("content before the greeting")),
        }
    }

    /// Handles everything until the connection ends; says why it did.
    pub(super) async fn run(&mut self, connection: &Connection, slots: &Slots) -> LinkError {
        loop {
            let result = match self.next().await {
                Ok(frame) => take_frame(frame, connection, slots),
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                return error;
            }
        }
    }
}

fn parse(document: &[u8]) -> Result<Message, LinkError> {
    serde_json::from_slice(document).map_err(|_| LinkError::Nonsense("a message it cannot say"))
}

fn take_frame(frame: Frame, connection: &Connection, slots: &Slots) -> Result<(), LinkError> {
    let result = match frame {
        Frame::Json(document) => {
            return take_message(parse(&document)?, document.len(), connection, slots);
        }
        Frame::Output {
            process,
            offset,
            stream,
            data,
        } => connection
            .pending
            .output(process)
            .and_then(|slot| slot.map_or(Ok(()), |slot| slot.accept(offset, stream, &data))),
        Frame::File { request, data } => connection
            .pending
            .read(request)
            .and_then(|slot| slot.map_or(Ok(()), |slot| slot.accept(&data))),
        Frame::Input { .. } => Err("input from the guest"),
    };
    result.map_err(LinkError::Nonsense)
}

fn take_message(
    message: Message,
    length: usize,
    connection: &Connection,
    slots: &Slots,
) -> Result<(), LinkError> {
    let result = match message {
        Message::Hello { .. } => Err("a second greeting"),
        Message::Reply { id, reply } => connection.pending.answer(id, Ok(reply), length),
        Message::Failed { id, error } => {
            connection
                .pending
                .answer(id, Err(super::calls::shorten(error)), length)
        }
        Message::Exited { process, exit } => {
            slots.exited(process, exit);
            Ok(())
        }
        Message::OutputEnd { process, end } => connection
            .pending
            .output(process)
            .and_then(|slot| slot.map_or(Ok(()), |slot| slot.ended(end))),
        Message::Watched { request, events } => {
            let slot = connection.pending.watch(request);
            slot.map(|slot| slot.map_or((), |slot| slot.accept(events)))
        }
        Message::WatchEnded { request } => {
            let slot = connection.pending.watch(request);
            slot.map(|slot| slot.map_or((), |slot| slot.end()))
        }
        Message::Packed {
            request,
            skipped,
            skipped_count,
        } => {
            let slot = connection.pending.read(request);
            slot.map(|slot| slot.map_or((), |slot| slot.packed(skipped, skipped_count)))
        }
        Message::InputCredit { process, received } => slots.credit(process, received),
        Message::InputRefused { process, error, .. } => {
            slots.refuse(process, super::calls::shorten(error));
            Ok(())
        }
    };
    result.map_err(LinkError::Nonsense)
}
