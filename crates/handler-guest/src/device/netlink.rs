//! Just enough of rtnetlink to furnish one device: an address, a route, up (`rtnetlink(7)`).

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket_with};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// Bytes of a message's header (`nlmsghdr`).
const HEADER: usize = 16;
/// `IFLA_INET6_ADDR_GEN_MODE` and its value for "no address by itself".
const GENERATE: (u16, u8) = (8, 1);

/// A socket for messages to the kernel about this network namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> rustix::io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // `NETLINK_ROUTE` is 0.
            None,
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// The number of a device.
    pub(super) fn index(&self, name: &str) -> rustix::io::Result<u32> {
        rustix::net::netdevice::name_to_index(&self.socket, name)
    }

    /// Keeps a device from giving itself an IPv6 address when it comes up. Kernels without IPv6 refuse.
    pub(super) fn without_own_ipv6(&mut self, index: u32) -> rustix::io::Result<()> {
        let mode = attribute(GENERATE.0, &[GENERATE.1]);
        let of_family = attribute(libc::AF_INET6 as u16, &mode);
        let mut body = interface(index, 0);
        body.extend(attribute(libc::IFLA_AF_SPEC, &of_family));
        self.ask(libc::RTM_NEWLINK, 0, &body)
    }

    /// Gives a device an IPv4 address with the length of its network's prefix.
    pub(super) fn add_address(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
    ) -> rustix::io::Result<()> {
        let mut body = vec![libc::AF_INET as u8, prefix, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend(attribute(libc::IFA_LOCAL, &address.octets()));
        body.extend(attribute(libc::IFA_ADDRESS, &address.octets()));
        self.ask(libc::RTM_NEWADDR, new_flags(), &body)
    }

    /// Brings a device up, with the size of its largest packet.
    pub(super) fn up(&mut self, index: u32, mtu: u16) -> rustix::io::Result<()> {
        let mut body = interface(index, libc::IFF_UP as u32);
        body.extend(attribute(libc::IFLA_MTU, &u32::from(mtu).to_ne_bytes()));
        self.ask(libc::RTM_NEWLINK, 0, &body)
    }

    /// Sends every IPv4 packet for elsewhere to a gateway on the device.
    pub(super) fn add_default_route(
        &mut self,
        index: u32,
        gateway: Ipv4Addr,
    ) -> rustix::io::Result<()> {
        // Family, both prefix lengths, type of service, table, who made it, scope, type, flags.
        let family = libc::AF_INET as u8;
        let (table, made_by) = (libc::RT_TABLE_MAIN, libc::RTPROT_BOOT);
        let (scope, kind) = (libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST);
        let mut body = vec![family, 0, 0, 0, table, made_by, scope, kind, 0, 0, 0, 0];
        body.extend(attribute(libc::RTA_OIF, &index.to_ne_bytes()));
        body.extend(attribute(libc::RTA_GATEWAY, &gateway.octets()));
        self.ask(libc::RTM_NEWROUTE, new_flags(), &body)
    }

    /// Sends one message and hears whether it was done.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> rustix::io::Result<()> {
        self.sequence += 1;
        let length = u32::try_from(HEADER + body.len()).map_err(|_| Errno::MSGSIZE)?;
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = [0u8; 4096];
        let (_, length) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        outcome(answer.get(..length).unwrap_or_default())
    }
}

/// The error number of an acknowledgement (`nlmsgerr`), which is negative, or zero.
fn outcome(answer: &[u8]) -> rustix::io::Result<()> {
    let number = answer
        .get(HEADER..HEADER + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(Errno::from_raw_os_error(number.saturating_neg())),
        None => Err(Errno::BADMSG),
    }
}

fn new_flags() -> u16 {
    (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16
}

/// `ifinfomsg`, with flags to set.
fn interface(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body
}

/// One attribute, filled up to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_filled_up_but_say_their_length() {
        assert_eq!(attribute(8, &[1]).len(), 8);
        assert_eq!(attribute(8, &[1])[..2], 5u16.to_ne_bytes());
        assert_eq!(attribute(8, &[1, 2, 3, 4]).len(), 8);
    }

    #[test]
    fn an_answer_is_heard() {
        let mut answer = vec![0; 20];
        assert_eq!(outcome(&answer), Ok(()));
        answer[HEADER..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(outcome(&answer), Err(Errno::PERM));
        assert_eq!(outcome(&answer[..19]), Err(Errno::BADMSG));
    }
}
