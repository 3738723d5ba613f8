//! What the filter does to its own process: nobody traces it, it leaves no core, what it frees is wiped, no
//! terminal ends it.

use crate::memory::WipingAllocator;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, setsid,
};
use std::io;

/// Makes the process fit to hold secrets.
pub(crate) fn harden() -> io::Result<()> {
    WipingAllocator::wipe_from_now_on();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )?;
    if let Err(error) = setsid() {
        // Already the leader of a session or of a group of its own.
        tracing::debug!(%error, "no new session");
    }
    let files = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: files.maximum,
        maximum: files.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays");
    }
    Ok(())
}
