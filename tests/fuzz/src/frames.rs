//! Frames of the guest link.

use crate::cut;
use handler_types::frame::{Frame, FrameDecoder, FrameError, encode};

/// The frames do not depend on the cuts, no more is held than came, and put into bytes again they are what they were.
pub(crate) fn guest_frame(data: &[u8]) {
    let (bytes, pieces) = cut(data);
    let (frames, error) = decoded([bytes].into_iter());
    assert_eq!(decoded(pieces), (frames.clone(), error));
    let mut again = Vec::new();
    for frame in &frames {
        encode(frame, &mut again).expect("a frame that was read can be written");
    }
    assert_eq!(again, bytes[..again.len()]);
}

fn decoded<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next(), Err(error), "an error stays");
                    return (frames, Some(error));
                }
            }
        }
    }
    (frames, None)
}
