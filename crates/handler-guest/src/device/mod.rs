//! The device of transparent mode: whatever programs send to anywhere comes to the guest as packets.
//!
//! It is made in the sandbox's own network namespace, by the launcher of a native sandbox or by the guest of a
//! container (`own`). It lives as long as the guest keeps the descriptor.

mod netlink;
mod own;

pub use own::enter;

use crate::launch::step::{StepError, StepExt};
use crate::sys;
use handler_netstack::{DEVICE_ADDRESS, MTU, PREFIX, STACK_ADDRESS};
use netlink::Netlink;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};

/// What it is called inside.
const NAME: &str = "handler0";
/// Where the kernel makes such devices.
const CONTROL: &str = "/dev/net/tun";

/// Makes and furnishes the device, in this network namespace. Only `CAP_NET_ADMIN` over it may.
pub(crate) fn make() -> Result<OwnedFd, StepError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::openat(CWD, CONTROL, flags, Mode::empty())
        .step(|| format!("transparent mode: open {CONTROL}"))?;
    sys::make_tun(device.as_fd(), NAME).step(|| "transparent mode: make a device")?;
    furnish().step(|| "transparent mode: furnish the device")?;
    Ok(device)
}

fn furnish() -> rustix::io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(NAME)?;
    // Without IPv6 in the kernel there is nothing to keep from.
    let _ = netlink.without_own_ipv6(index);
    netlink.add_address(index, DEVICE_ADDRESS, PREFIX)?;
    netlink.up(index, MTU)?;
    netlink.add_default_route(index, STACK_ADDRESS)
}
