//! What a packet is, and the packets that refuse: no state.

use crate::STACK_ADDRESS;
use crate::flow::Ends;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl,
    TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Port of name servers.
pub(crate) const DNS_PORT: u16 = 53;
const HOP_LIMIT: u8 = 64;
/// Bytes of the refused packet's payload that a refusal carries: its ports are among them.
const QUOTED: usize = 8;

/// What to do with a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind<'p> {
    /// It belongs to a connection, or begins one.
    Tcp {
        ends: Ends,
        /// It asks for a connection.
        begins: bool,
        /// It ends one; nothing may be answered to it.
        resets: bool,
    },
    /// A question to the name server.
    Dns {
        program: SocketAddrV4,
        message: &'p [u8],
    },
    /// It is refused with an error.
    Refused(Icmpv4DstUnreachable),
    /// It is dropped.
    Dropped,
}

/// Says what a packet is. Sums are not looked at: it comes from this machine's memory.
pub(crate) fn kind(packet: &[u8]) -> Kind<'_> {
    let Ok(ip) = Ipv4Packet::new_checked(packet) else {
        return Kind::Dropped;
    };
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    let to_many = to.is_multicast() || to.is_broadcast() || to.is_unspecified();
    let from_one = !(from.is_multicast() || from.is_broadcast() || from.is_unspecified());
    if ip.version() != 4 || to_many || !from_one || ip.frag_offset() != 0 {
        return Kind::Dropped;
    }
    let header = usize::from(ip.header_len());
    let payload = packet
        .get(header..usize::from(ip.total_len()))
        .unwrap_or_default();
    match ip.next_header() {
        IpProtocol::Tcp if ip.more_frags() => Kind::Refused(Icmpv4DstUnreachable::CommProhibited),
        IpProtocol::Tcp => tcp(from, to, payload),
        IpProtocol::Udp => udp(from, to, payload, ip.more_frags()),
        IpProtocol::Icmp if !is_question(payload) => Kind::Dropped,
        _ => Kind::Refused(Icmpv4DstUnreachable::CommProhibited),
    }
}

fn tcp(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Kind<'_> {
    let Ok(tcp) = TcpPacket::new_checked(payload) else {
        return Kind::Dropped;
    };
    if tcp.src_port() == 0 || tcp.dst_port() == 0 {
        return Kind::Dropped;
    }
    Kind::Tcp {
        ends: Ends {
            program: SocketAddrV4::new(from, tcp.src_port()),
            far: SocketAddrV4::new(to, tcp.dst_port()),
        },
        begins: tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin(),
        resets: tcp.rst(),
    }
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8], more: bool) -> Kind<'_> {
    let refused = Kind::Refused(Icmpv4DstUnreachable::PortUnreachable);
    if more {
        return refused;
    }
    let Ok(udp) = UdpPacket::new_checked(payload) else {
        return Kind::Dropped;
    };
    if to != STACK_ADDRESS || udp.dst_port() != DNS_PORT || udp.src_port() == 0 {
        return refused;
    }
    let length = usize::from(udp.len());
    Kind::Dns {
        program: SocketAddrV4::new(from, udp.src_port()),
        message: payload.get(8..length).unwrap_or_default(),
    }
}

/// Errors are never answered with errors.
fn is_question(icmp: &[u8]) -> bool {
    // Echo, timestamp, information, address mask: the requests of RFC 792 and RFC 950.
    matches!(icmp.first(), Some(8 | 13 | 15 | 17))
}

/// The packet that tells the sender of `refused` that it does not get there; none if it is no whole packet.
pub(crate) fn unreachable(refused: &[u8], reason: Icmpv4DstUnreachable) -> Option<Vec<u8>> {
    let sums = ChecksumCapabilities::default();
    let ip = Ipv4Packet::new_checked(refused).ok()?;
    let header = usize::from(ip.header_len());
    let payload = refused.get(header..usize::from(ip.total_len()))?;
    let icmp = Icmpv4Repr::DstUnreachable {
        reason,
        header: Ipv4Repr {
            src_addr: ip.src_addr(),
            dst_addr: ip.dst_addr(),
            next_header: ip.next_header(),
            payload_len: payload.len(),
            hop_limit: ip.hop_limit(),
        },
        data: &payload[..payload.len().min(QUOTED)],
    };
    let outer = Ipv4Repr {
        src_addr: ip.dst_addr(),
        dst_addr: ip.src_addr(),
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let mut packet = vec![0; outer.buffer_len() + icmp.buffer_len()];
    outer.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &sums);
    let at = outer.buffer_len();
    icmp.emit(&mut Icmpv4Packet::new_unchecked(&mut packet[at..]), &sums);
    Some(packet)
}

/// The packet that ends what `refused`, a TCP packet, begins or belongs to (RFC 9293, 3.10.7.1).
pub(crate) fn reset(refused: &[u8]) -> Option<Vec<u8>> {
    let sums = ChecksumCapabilities::default();
    let ip = Ipv4Packet::new_checked(refused).ok()?;
    let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
    if tcp.rst() {
        return None;
    }
    let (seq_number, ack_number) = if tcp.ack() {
        (tcp.ack_number(), None)
    } else {
        (TcpSeqNumber(0), Some(tcp.seq_number() + tcp.segment_len()))
    };
    let repr = TcpRepr {
        src_port: tcp.dst_port(),
        dst_port: tcp.src_port(),
        control: TcpControl::Rst,
        seq_number,
        ack_number,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (from, to) = (ip.dst_addr(), ip.src_addr());
    let outer = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Tcp,
        payload_len: repr.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let mut packet = vec![0; outer.buffer_len() + repr.buffer_len()];
    outer.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &sums);
    let at = outer.buffer_len();
    let mut tcp = TcpPacket::new_unchecked(&mut packet[at..]);
    repr.emit(&mut tcp, &from.into(), &to.into(), &sums);
    Some(packet)
}

/// An answer of the name server.
pub(crate) fn dns(program: SocketAddrV4, message: &[u8]) -> Vec<u8> {
    let sums = ChecksumCapabilities::default();
    let (from, to) = (STACK_ADDRESS, *program.ip());
    let repr = UdpRepr {
        src_port: DNS_PORT,
        dst_port: program.port(),
    };
    let outer = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Udp,
        payload_len: repr.header_len() + message.len(),
        hop_limit: HOP_LIMIT,
    };
    let mut packet = vec![0; outer.buffer_len() + outer.payload_len];
    outer.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &sums);
    let at = outer.buffer_len();
    let mut udp = UdpPacket::new_unchecked(&mut packet[at..]);
    let fill = |room: &mut [u8]| room.copy_from_slice(message);
    repr.emit(
        &mut udp,
        &from.into(),
        &to.into(),
        message.len(),
        fill,
        &sums,
    );
    packet
}
