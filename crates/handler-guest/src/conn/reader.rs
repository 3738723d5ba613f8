//! What the host sends.
//!
//! Invariant: bytes that are no frames, and frames that only the guest sends, end this connection and
//! nothing else.

use super::{Conn, dispatch};
use crate::files::write;
use crate::guest::Guest;
use handler_types::frame::{Frame, FrameDecoder};
use handler_types::guest::{GuestErrorCode, Request};
use std::rc::Rc;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// Bytes read at once.
const BUFFER: usize = 64 * 1024;

/// Reads requests until the host ends the connection or breaks the protocol.
pub(super) async fn read_requests(guest: &Rc<Guest>, conn: &Rc<Conn>, mut from: OwnedReadHalf) {
    let mut decoder = FrameDecoder::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        loop {
            conn.wait_room().await;
            match decoder.next() {
                Ok(Some(frame)) => {
                    if !take(guest, conn, frame).await {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_broken) => return,
            }
        }
        match from.read(&mut buffer).await {
            Ok(count @ 1..) => decoder.push(&buffer[..count]),
            _ => return,
        }
    }
}

/// Does what a frame asks; whether the connection goes on.
async fn take(guest: &Rc<Guest>, conn: &Rc<Conn>, frame: Frame) -> bool {
    match frame {
        Frame::Json(document) => match serde_json::from_slice::<Request>(&document) {
            Ok(request) => {
                dispatch::perform(guest, conn, request);
                true
            }
            Err(error) => refuse(conn, &document, &error),
        },
        Frame::Input {
            process,
            offset,
            data,
        } => {
            dispatch::input(guest, conn, process, offset, &data);
            true
        }
        Frame::File { request, data } => {
            write::take_chunk(conn, request, &data).await;
            // Writing to a disk is slow work: the others' turn.
            tokio::task::yield_now().await;
            true
        }
        Frame::Output { .. } => false,
    }
}

/// A request of a newer host is answered as unknown; what has no id ends the connection.
fn refuse(conn: &Conn, document: &[u8], error: &serde_json::Error) -> bool {
    #[derive(serde::Deserialize)]
    struct OnlyId {
        id: u32,
    }
    let Ok(OnlyId { id }) = serde_json::from_slice(document) else {
        return false;
    };
    let message = format!("not a request this guest knows: {error}");
    conn.answer(id, Err(crate::fail(GuestErrorCode::Invalid, message)));
    true
}
