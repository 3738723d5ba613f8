//! A screen as bytes for the disk: what its owner noted, the lines that have left it, and a redraw of the rest.

use crate::osc::OscState;
use crate::screen::{Screen, Size};
use crate::scrollback::{Limits, Line};
use serde::{Deserialize, Serialize};

/// First bytes, version included.
const MAGIC: &[u8] = b"screen1\n";

/// Why a snapshot is not usable.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not a snapshot of this version.
    #[error("this is no snapshot of a terminal's screen")]
    Foreign,
    /// Cut or changed.
    #[error("the snapshot of a terminal's screen is damaged")]
    Damaged,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    note: serde_json::Value,
    size: Size,
    osc: OscState,
    /// Text and whether it goes on in the next, oldest first.
    lines: Vec<(String, bool)>,
    /// Bytes of the redraw that follows.
    redraw: usize,
}

impl Screen {
    /// The screen as bytes, with a note of the caller's (small; where in the stream it stands).
    #[must_use]
    pub fn snapshot(&self, note: &serde_json::Value) -> Vec<u8> {
        let mut redraw = Vec::new();
        crate::redraw::write_lines(&self.near_lines(), self.size(), &mut redraw);
        self.write_state(&mut redraw);
        let header = Header {
            note: note.clone(),
            size: self.size(),
            osc: self.osc.clone(),
            lines: self
                .vt
                .callbacks()
                .far
                .lines()
                .map(|line| (line.text.to_string(), line.wrapped))
                .collect(),
            redraw: redraw.len(),
        };
        // All of it can be written as JSON.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(&redraw);
        out
    }

    /// The screen a snapshot was made of, and the note in it.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn restore(
        bytes: &[u8],
        limits: Limits,
    ) -> Result<(Self, serde_json::Value), SnapshotError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Foreign)?;
        let (length, rest) = rest
            .split_first_chunk::<4>()
            .ok_or(SnapshotError::Damaged)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (header, redraw) = rest
            .split_at_checked(length)
            .ok_or(SnapshotError::Damaged)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| SnapshotError::Damaged)?;
        if redraw.len() != header.redraw {
            return Err(SnapshotError::Damaged);
        }
        let mut screen = Self::new(header.size, limits);
        for (text, wrapped) in header.lines {
            screen.vt.callbacks_mut().far.push(Line {
                text: text.into(),
                wrapped,
            });
        }
        screen.feed(redraw);
        screen.take_replies();
        screen.osc = header.osc;
        Ok((screen, header.note))
    }
}
