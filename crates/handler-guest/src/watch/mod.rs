//! Telling the host what changes in folders.
//!
//! Each watch has an inotify of its own and a task that reads it. Invariant: at most [`MOST_WATCHES`] watches
//! per connection, [`tree::MOST_FOLDERS`] folders per watch and [`MOST_EVENTS`] waiting events; what goes beyond
//! is told as an overflow, once, in order.

mod tree;

use crate::conn::{Conn, Source, too_many_jobs};
use crate::failure::from_io;
use crate::files::path;
use handler_types::frame::encode_json;
use handler_types::guest::{GuestError, Message, WatchEvent, WatchKind};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// Most watches of one connection.
const MOST_WATCHES: usize = 32;
/// Most events waiting for one watch.
const MOST_EVENTS: usize = 4096;
/// Most events and bytes of text of one message, about.
const PAGE_EVENTS: usize = 256;
const PAGE_BYTES: usize = 64 * 1024;

/// Events of one watch on their way to the host.
#[derive(Debug)]
pub(crate) struct Watching {
    request: u32,
    conn: std::rc::Weak<Conn>,
    events: RefCell<VecDeque<WatchEvent>>,
    queued: Cell<bool>,
    /// The path is gone: told after the last event.
    is_over: Cell<bool>,
    ended: Notify,
}

impl Watching {
    /// Ends it; its task stops.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    /// Adds an event; one like the last is not told twice.
    fn push(&self, event: WatchEvent) {
        let mut events = self.events.borrow_mut();
        let is_repeated = events.back() == Some(&event)
            && matches!(
                event.kind,
                WatchKind::Write | WatchKind::Chmod | WatchKind::Overflow
            );
        if !is_repeated {
            if events.len() < MOST_EVENTS {
                events.push_back(event);
            } else if events
                .back()
                .is_some_and(|last| last.kind != WatchKind::Overflow)
            {
                events.push_back(WatchEvent {
                    kind: WatchKind::Overflow,
                    to: None,
                    ..event
                });
            }
        }
        drop(events);
        self.tell();
    }

    fn tell(&self) {
        if let Some(conn) = self.conn.upgrade()
            && !self.queued.replace(true)
        {
            conn.ready(Source::Watch(self.request));
        }
    }

    fn page(&self) -> Vec<WatchEvent> {
        let mut events = self.events.borrow_mut();
        let (mut page, mut size) = (Vec::new(), 0);
        while page.len() < PAGE_EVENTS && size < PAGE_BYTES {
            let Some(event) = events.pop_front() else {
                break;
            };
            size += event.path.len() + event.to.as_ref().map_or(0, String::len) + 60;
            page.push(event);
        }
        page
    }
}

/// Begins a watch; it is in force when this returns.
pub(crate) fn begin(
    conn: &Rc<Conn>,
    id: u32,
    text: &str,
    recursive: bool,
) -> Result<(), GuestError> {
    conn.check_free(id)?;
    if conn.watches.borrow().len() >= MOST_WATCHES {
        return Err(too_many_jobs());
    }
    let full = path::decode_absolute(text)?;
    let watching = Rc::new(Watching {
        request: id,
        conn: Rc::downgrade(conn),
        events: RefCell::default(),
        queued: Cell::new(false),
        is_over: Cell::new(false),
        ended: Notify::new(),
    });
    let mut tree = tree::Tree::open(full, recursive)
        .map_err(|error| from_io(&format!("watch {text}"), &error))?;
    conn.watches.borrow_mut().insert(id, Rc::clone(&watching));
    spawn_local(async move {
        let tell = |event| watching.push(event);
        tokio::select! {
            () = watching.ended.notified() => return,
            () = tree.run(tell) => {}
        }
        watching.is_over.set(true);
        watching.tell();
    });
    Ok(())
}

/// Adds one message with events; whether there is more to send now.
pub(crate) fn send_events(conn: &Conn, request: u32, batch: &mut Vec<u8>) -> bool {
    let Some(watching) = conn.watches.borrow().get(&request).map(Rc::clone) else {
        return false;
    };
    let events = watching.page();
    if !events.is_empty() {
        // A page is far below the longest frame.
        let _ = encode_json(&Message::Watched { request, events }, batch);
        return true;
    }
    if watching.is_over.get() {
        conn.watches.borrow_mut().remove(&request);
        let _ = encode_json(&Message::WatchEnded { request }, batch);
    }
    watching.queued.set(false);
    false
}
