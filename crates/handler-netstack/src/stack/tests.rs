//! The stack beside another one that plays the program's kernel: packets go from one to the other, time is counted.

use super::*;
use crate::DEVICE_ADDRESS;
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket, UdpRepr};
use std::net::Ipv4Addr;

/// The program's side.
struct Kernel {
    interface: Interface,
    queue: Queue,
    sockets: SocketSet<'static>,
}

/// Both sides and the time.
struct World {
    stack: Stack,
    kernel: Kernel,
    now: Duration,
    /// Packets of the stack that are no TCP.
    others: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let mut queue = Queue::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut queue, Instant::ZERO);
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::Ipv4(Ipv4Cidr::new(DEVICE_ADDRESS, PREFIX)))
                .expect("room");
        });
        interface
            .routes_mut()
            .add_default_ipv4_route(STACK_ADDRESS)
            .expect("room");
        let sockets = SocketSet::new(Vec::new());
        Self {
            stack: Stack::new(7),
            kernel: Kernel {
                interface,
                queue,
                sockets,
            },
            now: Duration::ZERO,
            others: Vec::new(),
        }
    }

    /// Moves packets until neither side has any.
    fn settle(&mut self) {
        loop {
            self.now += Duration::from_millis(1);
            let Kernel {
                interface,
                queue,
                sockets,
            } = &mut self.kernel;
            interface.poll(instant(self.now), queue, sockets);
            let sent: Vec<_> = queue.outgoing.drain(..).collect();
            sent.iter().for_each(|packet| self.stack.input(packet));
            self.stack.poll(self.now);
            let answers: Vec<_> = std::iter::from_fn(|| self.stack.output()).collect();
            if sent.is_empty() && answers.is_empty() {
                return;
            }
            for packet in answers {
                let is_tcp = Ipv4Packet::new_unchecked(&packet).next_header() == IpProtocol::Tcp;
                let to = if is_tcp {
                    &mut self.kernel.queue.incoming
                } else {
                    &mut Default::default()
                };
                to.push_back(packet.clone());
                if !is_tcp {
                    self.others.push(packet);
                }
            }
        }
    }

    fn dial(&mut self, to: (Ipv4Addr, u16), from: u16) -> SocketHandle {
        let handle = self.kernel.sockets.add(new_socket());
        let socket = self.kernel.sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket
            .connect(self.kernel.interface.context(), to, from)
            .expect("a connection begins");
        self.settle();
        handle
    }

    fn program(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.kernel.sockets.get_mut(handle)
    }

    fn asked(&mut self) -> (FlowId, Target) {
        match self.stack.event() {
            Some(Event::Connect(id, target)) => (id, target),
            other => panic!("no connection: {other:?}"),
        }
    }

    fn open(&mut self, from: u16) -> (SocketHandle, FlowId) {
        let handle = self.dial((Ipv4Addr::new(203, 0, 113, 9), 443), from);
        let (id, _) = self.asked();
        assert!(self.stack.accept(id));
        self.settle();
        assert_eq!(self.program(handle).state(), tcp::State::Established);
        (handle, id)
    }

    fn read(&mut self, id: FlowId) -> Vec<u8> {
        let mut bytes = vec![0; 4 * limits::BUFFER];
        let socket = self.stack.socket(id).expect("open");
        let count = socket.recv_slice(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }
}

#[test]
fn a_connection_waits_for_the_filter_and_then_carries_bytes_both_ways() {
    let mut world = World::new();
    let program = world.dial((Ipv4Addr::new(203, 0, 113, 9), 22), 40_000);
    let (id, target) = world.asked();
    assert_eq!(target.to_string(), "203.0.113.9:22");
    assert_eq!(
        world.program(program).state(),
        tcp::State::SynSent,
        "no answer before the filter's"
    );
    assert!(world.stack.accept(id));
    world.settle();
    world
        .program(program)
        .send_slice(b"question")
        .expect("open");
    world.settle();
    assert_eq!(world.read(id), b"question");
    world
        .stack
        .socket(id)
        .expect("open")
        .send_slice(b"answer")
        .expect("open");
    world.settle();
    let mut bytes = [0; 16];
    let count = world.program(program).recv_slice(&mut bytes).expect("open");
    assert_eq!(&bytes[..count], b"answer");
}

#[test]
fn each_direction_ends_on_its_own_and_nothing_is_left() {
    let mut world = World::new();
    let (program, id) = world.open(40_000);
    world.program(program).send_slice(b"all").expect("open");
    world.program(program).close();
    world.settle();
    assert_eq!(world.read(id), b"all");
    let ended = world
        .stack
        .socket(id)
        .expect("open")
        .recv_slice(&mut [0; 8]);
    assert_eq!(ended, Err(tcp::RecvError::Finished));
    let socket = world.stack.socket(id).expect("open");
    socket
        .send_slice(b"still here")
        .expect("the other direction is open");
    socket.close();
    world.stack.let_go(id);
    world.settle();
    let mut bytes = [0; 16];
    assert_eq!(world.program(program).recv_slice(&mut bytes), Ok(10));
    assert_eq!(world.stack.flows(), 0);
}

#[test]
fn a_stream_dropped_in_the_middle_cuts_the_connection() {
    let mut world = World::new();
    let (program, id) = world.open(40_000);
    world.stack.let_go(id);
    world.settle();
    assert_eq!(world.program(program).state(), tcp::State::Closed);
    assert_eq!(world.stack.flows(), 0);
}

#[test]
fn what_nobody_reads_stays_with_the_program() {
    let mut world = World::new();
    let (program, id) = world.open(40_000);
    let mut taken = 0;
    for _ in 0..100 {
        taken += world.program(program).send_slice(&[7; 8192]).expect("open");
        world.settle();
    }
    // Its own buffer and the stack's, and nothing in between.
    assert_eq!(taken, 2 * limits::BUFFER);
    let mut read = 0;
    while read < taken {
        let bytes = world.read(id);
        assert!(!bytes.is_empty(), "{read} of {taken}");
        read += bytes.len();
        // A window that opens is told at once or by the program's own probe.
        world.now += Duration::from_secs(1);
        world.settle();
    }
}

#[test]
fn a_refusal_is_told_at_once() {
    let mut world = World::new();
    let refused = world.dial((Ipv4Addr::new(203, 0, 113, 9), 443), 40_000);
    let (id, _) = world.asked();
    world.stack.refuse(id, Refusal::Refused);
    world.settle();
    assert_eq!(world.program(refused).state(), tcp::State::Closed);
    world.dial((Ipv4Addr::new(203, 0, 113, 9), 443), 40_001);
    let (id, _) = world.asked();
    world.stack.refuse(id, Refusal::Unreachable);
    world.settle();
    let told = world.others.pop().expect("an error");
    assert_eq!(told[20..22], [3, 1], "host unreachable");
    assert_eq!(
        told[28 + 20..28 + 24],
        [0x9c, 0x41, 0x01, 0xbb],
        "its ports"
    );
    assert_eq!(world.stack.flows(), 0);
}

#[test]
fn a_made_up_address_without_a_name_and_the_stack_itself_are_refused() {
    let mut world = World::new();
    for to in [
        (Ipv4Addr::new(198, 18, 1, 0), 443),
        (Ipv4Addr::new(198, 19, 255, 254), 80),
        (STACK_ADDRESS, 80),
    ] {
        let program = world.dial(to, 40_000 + to.1);
        assert_eq!(world.program(program).state(), tcp::State::Closed, "{to:?}");
        assert_eq!(world.stack.event(), None);
    }
}

#[test]
fn connections_are_bounded() {
    let mut world = World::new();
    let to = (Ipv4Addr::new(203, 0, 113, 9), 443);
    for number in 0..limits::FLOWS {
        world.dial(to, 10_000 + u16::try_from(number).expect("a port"));
    }
    assert_eq!(world.stack.flows(), limits::FLOWS);
    let one_more = world.dial(to, 60_000);
    assert_eq!(world.program(one_more).state(), tcp::State::Closed);
}

#[test]
fn a_program_that_goes_away_in_the_handshake_leaves_no_open_door() {
    let mut world = World::new();
    world.dial((Ipv4Addr::new(203, 0, 113, 9), 443), 40_000);
    let (id, _) = world.asked();
    assert!(world.stack.accept(id));
    let greeting = world.stack.output().expect("its second packet");
    world
        .stack
        .input(&packet::reset(&greeting).expect("a reset"));
    world.stack.poll(world.now);
    let state = world.stack.socket(id).expect("held").state();
    assert_eq!(state, tcp::State::Closed);
    world.stack.let_go(id);
    world.stack.poll(world.now);
    assert_eq!(world.stack.flows(), 0);
}

/// A UDP packet of the program.
fn datagram(to: Ipv4Addr, port: u16, message: &[u8]) -> Vec<u8> {
    let (sums, from) = (ChecksumCapabilities::default(), DEVICE_ADDRESS);
    let udp = UdpRepr {
        src_port: 5353,
        dst_port: port,
    };
    let ip = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + message.len(),
        hop_limit: 64,
    };
    let mut packet = vec![0; 20 + ip.payload_len];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &sums);
    let fill = |room: &mut [u8]| room.copy_from_slice(message);
    let mut view = UdpPacket::new_unchecked(&mut packet[20..]);
    udp.emit(
        &mut view,
        &from.into(),
        &to.into(),
        message.len(),
        fill,
        &sums,
    );
    packet
}

/// A question for the address of `a.example`.
const QUESTION: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01";

#[test]
fn a_listed_name_gets_an_address_that_leads_to_it() {
    let mut world = World::new();
    world.stack.input(&datagram(STACK_ADDRESS, 53, QUESTION));
    let Some(Event::Query(query)) = world.stack.event() else {
        panic!("no question");
    };
    assert_eq!(query.name(), "a.example");
    world.stack.answer(&query, Some(true));
    let packet = world.stack.output().expect("an answer");
    let view = Ipv4Packet::new_checked(&packet).expect("a packet");
    assert_eq!(
        (view.src_addr(), view.dst_addr()),
        (STACK_ADDRESS, DEVICE_ADDRESS)
    );
    let udp = UdpPacket::new_checked(view.payload()).expect("a datagram");
    assert!(udp.verify_checksum(&STACK_ADDRESS.into(), &DEVICE_ADDRESS.into()));
    let octets: [u8; 4] = packet[packet.len() - 4..].try_into().expect("four");
    world.dial((octets.into(), 443), 40_000);
    assert_eq!(world.asked().1, Target::Name("a.example".to_owned(), 443));
}

#[test]
fn other_names_do_not_exist_and_a_silent_filter_is_a_failure() {
    for (word, code) in [(Some(false), 3), (None, 2)] {
        let mut stack = Stack::new(7);
        stack.input(&datagram(STACK_ADDRESS, 53, QUESTION));
        let Some(Event::Query(query)) = stack.event() else {
            panic!("no question");
        };
        stack.answer(&query, word);
        let packet = stack.output().expect("an answer");
        assert_eq!(packet[28 + 3] & 0xf, code);
    }
}

#[test]
fn questions_are_bounded() {
    let mut stack = Stack::new(7);
    for _ in 0..limits::QUERIES + 5 {
        stack.input(&datagram(STACK_ADDRESS, 53, QUESTION));
    }
    let failures = std::iter::from_fn(|| stack.output()).count();
    let asked = std::iter::from_fn(|| stack.event()).count();
    assert_eq!((asked, failures), (limits::QUERIES, 5));
}

#[test]
fn other_packets_are_refused_with_an_error_or_dropped() {
    let told = |packet: &[u8]| {
        let mut stack = Stack::new(7);
        stack.input(packet);
        assert_eq!(stack.event(), None);
        stack.output().map(|answer| (answer[20], answer[21]))
    };
    let far = Ipv4Addr::new(203, 0, 113, 9);
    assert_eq!(told(&datagram(far, 443, b"quic")), Some((3, 3)));
    assert_eq!(told(&datagram(STACK_ADDRESS, 123, b"time")), Some((3, 3)));
    assert_eq!(
        told(&datagram(Ipv4Addr::new(224, 0, 0, 251), 5353, b"mdns")),
        None
    );
    let with_protocol = |number: u8, first: u8| {
        let mut packet = datagram(far, 443, b"x");
        (packet[9], packet[20]) = (number, first);
        packet
    };
    assert_eq!(told(&with_protocol(1, 8)), Some((3, 13)), "ping");
    assert_eq!(told(&with_protocol(1, 3)), None, "an error is not answered");
    assert_eq!(told(&with_protocol(132, 0)), Some((3, 13)), "SCTP");
    let mut later_fragment = datagram(far, 443, b"x");
    later_fragment[7] = 9;
    assert_eq!(told(&later_fragment), None);
    assert_eq!(told(&[0x60; 60]), None, "IPv6");
}

#[test]
fn a_packet_of_no_connection_is_reset_and_a_reset_is_not() {
    let mut world = World::new();
    let (program, id) = world.open(40_000);
    world.program(program).send_slice(b"x").expect("open");
    let mut other = Stack::new(9);
    let Kernel {
        interface,
        queue,
        sockets,
    } = &mut world.kernel;
    interface.poll(instant(world.now), queue, sockets);
    let packet = queue.outgoing.pop_front().expect("a segment");
    other.input(&packet);
    let reset = other.output().expect("a reset");
    assert!(TcpPacket::new_checked(&reset[20..]).expect("TCP").rst());
    other.input(&reset);
    assert_eq!(other.output(), None);
    assert!(world.stack.socket(id).is_some());
}

proptest! {
    #[test]
    fn random_packets_do_no_harm(
        packets in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..80), 0..4u8), 1..60),
    ) {
        let mut stack = Stack::new(7);
        for (number, (mut packet, kind)) in packets.into_iter().enumerate() {
            // Some with a head that is looked into further.
            if kind > 0 && packet.len() > 24 {
                packet[0] = 0x45;
                let length = u16::try_from(packet.len()).expect("short");
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                packet[6] &= 0x40;
                packet[7] = 0;
                packet[9] = [0, 6, 17, 1][usize::from(kind)];
                if kind == 1 && packet.len() >= 40 {
                    packet[32] = 0x50;
                    packet[33] = 2;
                }
            }
            stack.input(&packet);
            while let Some(event) = stack.event() {
                match event {
                    Event::Connect(id, _) if number % 2 == 0 => drop(stack.accept(id)),
                    Event::Connect(id, _) => stack.refuse(id, Refusal::Unreachable),
                    Event::Query(query) => stack.answer(&query, Some(true)),
                    Event::DnsStream(id) => stack.let_go(id),
                }
            }
            stack.poll(Duration::from_millis(number as u64 * 700));
            while stack.output().is_some() {}
        }
        prop_assert!(stack.flows() <= 60);
    }

    #[test]
    fn a_broken_connection_breaks_nothing_else(bytes in proptest::collection::vec(any::<(u8, u8)>(), 1..40)) {
        let mut world = World::new();
        let (program, id) = world.open(40_000);
        world.program(program).send_slice(b"x").expect("open");
        let Kernel { interface, queue, sockets } = &mut world.kernel;
        interface.poll(instant(world.now), queue, sockets);
        let packet = queue.outgoing.pop_front().expect("a segment");
        for (at, value) in bytes {
            let mut broken = packet.clone();
            let at = 20 + usize::from(at) % (broken.len() - 20);
            broken[at] = value;
            world.stack.input(&broken);
            world.stack.poll(world.now);
            while world.stack.output().is_some() {}
        }
        world.stack.let_go(id);
        let (other, _) = world.open(41_000);
        prop_assert_eq!(world.program(other).state(), tcp::State::Established);
    }
}
