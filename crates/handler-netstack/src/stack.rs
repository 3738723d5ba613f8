//! The stack itself: packets in and out on one side, streams and questions on the other. No I/O, no clock.

use crate::flow::{Ends, Flow, FlowId, Phase, Refusal, Target};
use crate::names::Names;
use crate::packet::{self, DNS_PORT, Kind};
use crate::queue::Queue;
use crate::{PREFIX, STACK_ADDRESS, dns, limits};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration as Span, Instant};
use smoltcp::wire::{HardwareAddress, Icmpv4DstUnreachable, IpCidr, Ipv4Cidr};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddrV4;
use std::time::Duration;

/// A question of a program for a name, to be given back with the filter's word.
#[derive(Debug, PartialEq, Eq)]
pub struct Query {
    program: SocketAddrV4,
    question: dns::Question,
    name: String,
}

impl Query {
    /// The name asked for, lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Something the filter has to be asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A program wants a connection: answer with [`Stack::accept`] or [`Stack::refuse`].
    Connect(FlowId, Target),
    /// A program has a connection to the name server; it is open already.
    DnsStream(FlowId),
    /// A program asks for a name: answer with [`Stack::answer`].
    Query(Query),
}

/// The stack of one sandbox.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    queue: Queue,
    names: Names,
    flows: HashMap<FlowId, Flow>,
    by_ends: HashMap<Ends, FlowId>,
    events: VecDeque<Event>,
    queries: usize,
    last: u64,
    now: Instant,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// A stack without connections. `seed`: random, so that sequence numbers cannot be guessed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut queue = Queue::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut queue, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // One address always has room.
            let _ = addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(STACK_ADDRESS, PREFIX)));
        });
        // With the own address as gateway, packets to any address are for this stack.
        interface.set_any_ip(true);
        let _ = interface.routes_mut().add_default_ipv4_route(STACK_ADDRESS);
        Self {
            interface,
            sockets: SocketSet::new(Vec::new()),
            queue,
            names: Names::new(),
            flows: HashMap::new(),
            by_ends: HashMap::new(),
            events: VecDeque::new(),
            queries: 0,
            last: 0,
            now: Instant::ZERO,
        }
    }

    /// Takes a packet from the device.
    pub fn input(&mut self, packet: &[u8]) {
        match packet::kind(packet) {
            Kind::Tcp {
                ends,
                begins,
                resets,
            } => self.tcp(packet, ends, begins, resets),
            Kind::Dns { program, message } => self.dns(program, message),
            Kind::Refused(reason) => self.send(packet::unreachable(packet, reason)),
            Kind::Dropped => {}
        }
    }

    /// Works on what came in and is to go out. `now`: time since the stack was made.
    pub fn poll(&mut self, now: Duration) {
        self.now = instant(now);
        self.work();
        self.forget_ended();
    }

    /// A packet for the device.
    pub fn output(&mut self) -> Option<Vec<u8>> {
        self.queue.outgoing.pop_front()
    }

    /// Something to ask the filter.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How long until [`Stack::poll`] has to be called though nothing happens; none: not at all.
    pub fn wait(&mut self, now: Duration) -> Option<Duration> {
        let delay = self.interface.poll_delay(instant(now), &self.sockets)?;
        Some(Duration::from_micros(delay.total_micros()))
    }

    /// Connections, those that wait for the filter included.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Opens a connection that waits. False: it has gone meanwhile.
    pub fn accept(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.get(&id) else {
            return false;
        };
        let Phase::Asked { first } = &flow.phase else {
            return false;
        };
        let first = first.clone();
        let mut socket = new_socket();
        if socket
            .listen((*flow.ends.far.ip(), flow.ends.far.port()))
            .is_err()
        {
            self.refuse(id, Refusal::Refused);
            return false;
        }
        let handle = self.sockets.add(socket);
        // Nothing else comes before it, so that the socket's first packet is its own.
        self.queue.incoming.push_front(first);
        self.work();
        if self.sockets.get::<tcp::Socket<'_>>(handle).is_listening() {
            // It was no proper first packet. The socket must not take another's.
            self.sockets.remove(handle);
            self.refuse(id, Refusal::Refused);
            return false;
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.phase = Phase::Open(handle);
            flow.held = true;
        }
        true
    }

    /// Refuses a connection that waits, at once and with an error.
    pub fn refuse(&mut self, id: FlowId, how: Refusal) {
        let Some(flow) = self.remove(id) else { return };
        if let Phase::Asked { first } = flow.phase {
            self.send(match how {
                Refusal::Refused => packet::reset(&first),
                Refusal::Unreachable => {
                    packet::unreachable(&first, Icmpv4DstUnreachable::HostUnreachable)
                }
            });
        }
    }

    /// Answers a question. `listed`: the filter's word on the name; none: it could not be asked.
    pub fn answer(&mut self, query: &Query, listed: Option<bool>) {
        self.queries = self.queries.saturating_sub(1);
        let message = self.dns_answer(&query.question, listed);
        let packet = packet::dns(query.program, &message);
        self.queue.send(packet);
    }

    /// The answer to a question that came on a stream.
    pub fn dns_answer(&mut self, question: &dns::Question, listed: Option<bool>) -> Vec<u8> {
        let answer = match (listed, &question.name) {
            (None, _) => dns::Answer::Failure,
            (Some(false), _) | (_, None) => dns::Answer::NoName,
            (Some(true), Some(_)) if !question.wants_address() => dns::Answer::Nothing,
            (Some(true), Some(name)) => match self.names.address_of(name) {
                Some(address) => dns::Answer::Address(address),
                None => dns::Answer::Failure,
            },
        };
        question.answered(answer)
    }

    /// The socket of an open connection.
    pub(crate) fn socket(&mut self, id: FlowId) -> Option<&mut tcp::Socket<'static>> {
        match self.flows.get(&id)?.phase {
            Phase::Open(handle) => Some(self.sockets.get_mut(handle)),
            Phase::Asked { .. } => None,
        }
    }

    /// The stream of a connection is gone: it goes on to a good end if it is at one, else it is cut.
    pub(crate) fn let_go(&mut self, id: FlowId) {
        let Some(socket) = self.socket(id) else {
            return;
        };
        let is_ending = matches!(
            socket.state(),
            tcp::State::LastAck | tcp::State::Closing | tcp::State::TimeWait | tcp::State::Closed
        );
        if !is_ending {
            socket.abort();
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.held = false;
        }
    }

    fn tcp(&mut self, packet: &[u8], ends: Ends, begins: bool, resets: bool) {
        if let Some(id) = self.by_ends.get(&ends).copied() {
            let asked = matches!(
                self.flows.get(&id).map(|flow| &flow.phase),
                Some(Phase::Asked { .. })
            );
            match (asked, resets) {
                (true, true) => drop(self.remove(id)),
                (true, false) => self.again(id, packet, begins),
                (false, _) => self.queue.incoming.push_back(packet.to_vec()),
            }
            return;
        }
        if !begins {
            return self.send(packet::reset(packet));
        }
        match self.target(ends.far) {
            Some(_) if self.flows.len() >= limits::FLOWS => self.send(packet::reset(packet)),
            Some(target) => self.begin(packet, ends, target),
            None => self.send(packet::reset(packet)),
        }
    }

    /// A packet of a connection that waits: its first one once more, or that of a later try from the same port.
    fn again(&mut self, id: FlowId, packet: &[u8], begins: bool) {
        if let Some(flow) = self.flows.get_mut(&id)
            && let Phase::Asked { first } = &mut flow.phase
            && begins
        {
            packet.clone_into(first);
        }
    }

    fn work(&mut self) {
        self.interface
            .poll(self.now, &mut self.queue, &mut self.sockets);
        for flow in self.flows.values() {
            if let Phase::Open(handle) = flow.phase {
                let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
                // A program that went away in the middle of the handshake; its socket must not take another's.
                if socket.is_listening() {
                    socket.abort();
                }
            }
        }
    }

    /// Where a connection to an address leads; none: nowhere.
    fn target(&self, far: SocketAddrV4) -> Option<Option<Target>> {
        if *far.ip() == STACK_ADDRESS {
            return (far.port() == DNS_PORT).then_some(None);
        }
        if !Names::is_made_up(*far.ip()) {
            return Some(Some(Target::Address(*far.ip(), far.port())));
        }
        let name = self.names.name_of(*far.ip())?;
        Some(Some(Target::Name(name.to_owned(), far.port())))
    }

    /// A new connection. No target: it is for the name server here.
    fn begin(&mut self, packet: &[u8], ends: Ends, target: Option<Target>) {
        self.last += 1;
        let id = FlowId(self.last);
        let flow = Flow {
            ends,
            phase: Phase::Asked {
                first: packet.to_vec(),
            },
            held: false,
        };
        self.names.hold(*ends.far.ip());
        self.flows.insert(id, flow);
        self.by_ends.insert(ends, id);
        match target {
            Some(target) => self.events.push_back(Event::Connect(id, target)),
            None if self.accept(id) => self.events.push_back(Event::DnsStream(id)),
            None => {}
        }
    }

    fn dns(&mut self, program: SocketAddrV4, message: &[u8]) {
        let answer = match dns::read(message) {
            Err(None) => return,
            Err(Some(answer)) => answer,
            Ok(question) => match question.name.clone() {
                None => question.answered(dns::Answer::NoName),
                Some(_) if self.queries >= limits::QUERIES => {
                    question.answered(dns::Answer::Failure)
                }
                Some(name) => {
                    self.queries += 1;
                    return self.events.push_back(Event::Query(Query {
                        program,
                        question,
                        name,
                    }));
                }
            },
        };
        let packet = packet::dns(program, &answer);
        self.queue.send(packet);
    }

    fn send(&mut self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.queue.send(packet);
        }
    }

    fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.by_ends.remove(&flow.ends);
        self.names.release(*flow.ends.far.ip());
        if let Phase::Open(handle) = flow.phase {
            self.sockets.remove(handle);
        }
        Some(flow)
    }

    /// Takes out connections that nobody holds and that are over. The last packet of one is out by now; should
    /// it have been lost, the program's kernel is told by a reset.
    fn forget_ended(&mut self) {
        let is_over = |handle: &SocketHandle| {
            let state = self.sockets.get::<tcp::Socket<'_>>(*handle).state();
            matches!(state, tcp::State::Closed | tcp::State::TimeWait)
        };
        let over: Vec<FlowId> = self
            .flows
            .iter()
            .filter(|(_, flow)| !flow.held)
            .filter(|(_, flow)| matches!(&flow.phase, Phase::Open(handle) if is_over(handle)))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.remove(id);
        }
    }
}

fn new_socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; limits::BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    // The other end is this machine: waiting to fill packets gains nothing.
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket.set_timeout(Some(Span::from_micros(
        limits::UNACKNOWLEDGED.as_micros() as u64
    )));
    socket
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
