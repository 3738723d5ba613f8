//! The state of a terminal's screen: bytes in, cut anywhere; rows, cursor, modes, title and shell marks out; and
//! bytes that put any other terminal of the same size into the same state.
//!
//! The output of a sandbox is untrusted: everything kept is bounded, and nothing in it makes this panic.

mod charset;
mod csi;
mod modes;
mod osc;
mod probe;
mod redraw;
mod reply;
mod scan;
mod screen;
mod scrollback;
mod snapshot;

pub use osc::{OscState, ShellMarks};
pub use screen::{Cell, CursorShape, Look, Screen, Size};
pub use scrollback::Limits;
pub use snapshot::SnapshotError;
