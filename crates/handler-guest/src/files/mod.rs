//! Files of the sandbox, with the guest's own rights.
//!
//! Work is done inline in small steps; long jobs give others their turn between steps.

pub(crate) mod chmod;
pub(crate) mod entry;
pub(crate) mod folder;
pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod path;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod write;

use crate::fail;
use handler_types::guest::{GuestError, GuestErrorCode};
use rustix::fs::Mode;

/// Checks permission bits from the host.
pub(crate) fn mode_of(bits: u32) -> Result<Mode, GuestError> {
    if bits > 0o7777 {
        let message = format!("permission bits {bits:o} (at most 7777)");
        return Err(fail(GuestErrorCode::Invalid, message));
    }
    Ok(Mode::from_raw_mode(bits))
}
