//! The driver: moves packets between device and [`Stack`], and bytes between streams and the filter.

use crate::flow::{FlowId, Target};
use crate::resolver::Resolver;
use crate::stack::{Event, Query, Stack};
use crate::stream::Stream;
use crate::{MTU, dns, filter, limits};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

/// Bytes of the buffer between a connection and its tunnel, each direction; the connection has its own behind it.
const COPY: usize = 16 * 1024;

/// What all tasks of one stack share, on one thread. No borrow is held across an `await`.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stack: RefCell<Stack>,
    /// A stream has changed something.
    pub(crate) wake: Notify,
    socket: PathBuf,
    resolver: Resolver,
}

/// Serves a device for ever, inside a [`tokio::task::LocalSet`]. `seed` is random; `socket` leads to the filter.
///
/// # Errors
/// When the device is gone.
pub async fn run(device: AsyncFd<OwnedFd>, socket: PathBuf, seed: u64) -> io::Result<()> {
    let shared = Rc::new(Shared {
        stack: RefCell::new(Stack::new(seed)),
        wake: Notify::new(),
        socket,
        resolver: Resolver::default(),
    });
    let start = Instant::now();
    let mut buffer = vec![0; usize::from(MTU)];
    loop {
        let delay = shared.stack.borrow_mut().wait(start.elapsed());
        tokio::select! {
            ready = device.readable() => {
                let mut ready = ready?;
                for _ in 0..limits::BATCH {
                    let read = ready.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut buffer)?));
                    let Ok(read) = read else { break };
                    shared.stack.borrow_mut().input(&buffer[..read?]);
                }
            }
            () = shared.wake.notified() => {}
            () = sleep(delay.unwrap_or(Duration::MAX)), if delay.is_some() => {}
        }
        work(&shared, &device, start.elapsed());
        // A device that always has packets must not keep streams from theirs.
        tokio::task::yield_now().await;
    }
}

/// Lets the stack work until it has nothing left for the device, and begins what it asks for.
fn work(shared: &Rc<Shared>, device: &AsyncFd<OwnedFd>, now: Duration) {
    let mut stack = shared.stack.borrow_mut();
    loop {
        stack.poll(now);
        let mut sent = 0;
        while let Some(packet) = stack.output() {
            // A packet that the kernel has no room for is lost, as on any network.
            let _ = rustix::io::write(device.get_ref(), &packet);
            sent += 1;
        }
        if sent < limits::PACKETS_OUT {
            break;
        }
    }
    while let Some(event) = stack.event() {
        let shared = Rc::clone(shared);
        match event {
            Event::Connect(id, target) => drop(spawn_local(connect(shared, id, target))),
            Event::DnsStream(id) => drop(spawn_local(answer_stream(shared, id))),
            Event::Query(query) => drop(spawn_local(answer(shared, query))),
        }
    }
}

async fn connect(shared: Rc<Shared>, id: FlowId, target: Target) {
    let mut tunnel = match filter::connect(&shared.socket, &target).await {
        Ok(tunnel) => tunnel,
        Err(refusal) => {
            shared.stack.borrow_mut().refuse(id, refusal);
            return shared.wake.notify_one();
        }
    };
    let accepted = shared.stack.borrow_mut().accept(id);
    shared.wake.notify_one();
    if !accepted {
        return;
    }
    let mut stream = Stream::new(Rc::clone(&shared), id);
    // An end in disorder cuts the connection, when the stream is dropped.
    if stream.write_all(&tunnel.early).await.is_ok() {
        let copied = copy_bidirectional_with_sizes(&mut stream, &mut tunnel.stream, COPY, COPY);
        let _ = copied.await;
    }
}

async fn answer(shared: Rc<Shared>, query: Query) {
    let listed = shared
        .resolver
        .is_listed(&shared.socket, query.name())
        .await;
    shared.stack.borrow_mut().answer(&query, listed);
    shared.wake.notify_one();
}

/// Questions on a stream, each behind its length (RFC 7766), one after the other.
async fn answer_stream(shared: Rc<Shared>, id: FlowId) {
    let mut stream = Stream::new(Rc::clone(&shared), id);
    while let Ok(Ok(answer)) = timeout(limits::DNS_IDLE, answer_next(&shared, &mut stream)).await {
        let length = u16::try_from(answer.len()).unwrap_or_default();
        let mut message = length.to_be_bytes().to_vec();
        message.extend(answer);
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn answer_next(shared: &Shared, stream: &mut Stream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > dns::MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    let question = match dns::read(&message) {
        Ok(question) => question,
        Err(answer) => return answer.ok_or_else(|| io::ErrorKind::InvalidData.into()),
    };
    let listed = match &question.name {
        Some(name) => shared.resolver.is_listed(&shared.socket, name).await,
        None => Some(false),
    };
    Ok(shared.stack.borrow_mut().dns_answer(&question, listed))
}
