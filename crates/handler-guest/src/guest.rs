//! Everything one guest knows, shared by its tasks on one thread.
//!
//! Invariant: no borrow of a cell is held across an `await`.

use crate::config::GuestConfig;
use crate::conn::Conn;
use crate::process::table::Table;
use handler_types::guest::{Message, OUTPUT_WINDOW};
use rustix::process::{Resource, Rlimit};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// Above this many bytes of output held for all processes together those without a host get the small
/// window.
const OUTPUT_BUDGET: u64 = 64 * 1024 * 1024;
/// The small window in bytes.
const SMALL_WINDOW: u64 = 64 * 1024;
/// Most open files the guest asks for itself.
const OPEN_FILES: u64 = 65_536;

/// See the module.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) config: GuestConfig,
    /// Random per start.
    pub(crate) boot: String,
    pub(crate) started: Instant,
    /// Whether this is PID 1 of a namespace, so that every process here is the sandbox's.
    pub(crate) is_init: bool,
    pub(crate) own_pid: i32,
    /// Environment of every command.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// Limit of open files to give back to commands, when the guest raised its own.
    pub(crate) open_files: Option<Rlimit>,
    pub(crate) table: RefCell<Table>,
    pub(crate) conns: RefCell<BTreeMap<u64, Rc<Conn>>>,
    /// Pids of living supervisors.
    pub(crate) supervisors: RefCell<BTreeSet<i32>>,
    /// Output bytes held for all processes.
    pub(crate) held: Cell<u64>,
    pub(crate) stopping: Cell<bool>,
    /// Told when `stopping` is set.
    pub(crate) stop: Notify,
}

impl Guest {
    pub(crate) fn new(config: GuestConfig) -> io::Result<Rc<Self>> {
        let own = rustix::process::getpid();
        let env = base_environment(&config);
        Ok(Rc::new(Self {
            boot: crate::sys::random_hex::<16>()?,
            started: Instant::now(),
            is_init: own.is_init(),
            own_pid: own.as_raw_nonzero().get(),
            env,
            open_files: raise_open_files(),
            config,
            table: RefCell::default(),
            conns: RefCell::default(),
            supervisors: RefCell::default(),
            held: Cell::new(0),
            stopping: Cell::new(false),
            stop: Notify::new(),
        }))
    }

    /// Output window of a process at this moment, in bytes. Only those nobody takes output from are
    /// narrowed: a host may use the whole window of the others before it acknowledges anything.
    pub(crate) fn output_window(&self, attached: bool) -> u64 {
        if attached || self.held.get() <= OUTPUT_BUDGET {
            OUTPUT_WINDOW
        } else {
            SMALL_WINDOW
        }
    }

    /// Corrects the sum of held output after a ring went from `before` to `after` bytes.
    pub(crate) fn account(&self, before: u64, after: u64) {
        self.held
            .set((self.held.get() + after).saturating_sub(before));
    }

    /// Says something on every connection.
    pub(crate) fn broadcast(&self, message: &Message) {
        for conn in self.conns.borrow().values() {
            conn.say(message);
        }
    }

    /// Begins the end of everything.
    pub(crate) fn begin_stop(&self) {
        self.stopping.set(true);
        self.stop.notify_one();
    }
}

fn base_environment(config: &GuestConfig) -> BTreeMap<OsString, OsString> {
    let mut env = config.env.clone();
    // They speak of the folder the guest was started in.
    env.remove(std::ffi::OsStr::new("PWD"));
    env.remove(std::ffi::OsStr::new("OLDPWD"));
    env.entry("HOME".into())
        .or_insert_with(|| config.home.clone().into());
    env
}

/// Raises the soft limit, as many processes need many pipes; gives the old one if it changed.
fn raise_open_files() -> Option<Rlimit> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let ceiling = before.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if before.current.is_none_or(|current| current >= ceiling) {
        return None;
    }
    let raised = Rlimit {
        current: Some(ceiling),
        maximum: before.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .is_ok()
        .then_some(before)
}
