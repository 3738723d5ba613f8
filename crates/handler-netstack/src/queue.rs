//! The device smoltcp sees: two queues of packets.

use crate::{MTU, limits};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::collections::VecDeque;

/// Packets in and out.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) incoming: VecDeque<Vec<u8>>,
    pub(crate) outgoing: VecDeque<Vec<u8>>,
}

impl Queue {
    /// Puts a packet out, unless too many wait already: whoever sent what it answers sends it again.
    pub(crate) fn send(&mut self, packet: Vec<u8>) {
        if self.outgoing.len() < limits::PACKETS_OUT {
            self.outgoing.push_back(packet);
        }
    }
}

impl Device for Queue {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming, Outgoing<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Incoming(packet), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        (self.outgoing.len() < limits::PACKETS_OUT).then_some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(MTU);
        // Packets come from the same kernel's memory: sums are made for it, which insists, and not looked at here.
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

/// A packet for smoltcp.
#[derive(Debug)]
pub(crate) struct Incoming(Vec<u8>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, use_packet: F) -> R {
        use_packet(&self.0)
    }
}

/// Room for a packet of smoltcp.
#[derive(Debug)]
pub(crate) struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let result = fill(&mut packet);
        self.0.push_back(packet);
        result
    }
}
