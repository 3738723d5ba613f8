//! What PID 1 gives up before it serves: capabilities, privileges, core dumps, being looked into.
//!
//! Order matters: the secure bits and the bounding set need a capability, which is dropped last.

use super::step::{StepError, StepExt};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

/// Gives up everything. `open_files`: the limit of open files (never above the hard limit).
pub(super) fn apply(open_files: u64) -> Result<(), StepError> {
    limits(open_files)?;
    drop_capabilities(|| Ok(()))?;
    set_no_new_privs(true).step(|| "no new privileges")?;
    // PID 1 holds the guest's listening socket: nobody inside may read its memory or take its files.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step(|| "not dumpable")
}

fn limits(open_files: u64) -> Result<(), StepError> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).step(|| "core size limit")?;
    let most = getrlimit(Resource::Nofile)
        .maximum
        .map_or(open_files, |hard| hard.min(open_files));
    let files = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Nofile, files).step(|| "open files limit")
}

/// Empties every set of capabilities. `change_user` runs while those that are in effect still are.
pub(crate) fn drop_capabilities(
    change_user: impl FnOnce() -> Result<(), StepError>,
) -> Result<(), StepError> {
    for number in 0..64u32 {
        let Some(bit) = CapabilitySet::from_bits(1 << number) else {
            continue;
        };
        match remove_capability_from_bounding_set(bit) {
            Ok(()) => {}
            // The first number that the kernel does not know.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error).step(|| "bounding set"),
        }
    }
    clear_ambient_capability_set().step(|| "ambient capabilities")?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).step(|| "secure bits")?;
    change_user()?;
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, nothing).step(|| "drop capabilities")
}
