//! The memory of what was asked: the newest requests, and a log file when one is wanted.
//!
//! Invariant: the memory never holds more than its configured number of requests.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::keys;

/// One request as it arrived, and how it was answered.
#[derive(Clone, Serialize)]
pub struct RecordedRequest {
    /// Arrival, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// HTTP method in capitals.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query without the question mark; empty when there was none.
    pub query: String,
    /// Headers in the order of arrival, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, decompressed: JSON when it parses as such, else text, `null` when empty.
    pub body: Value,
    /// Status of the answer.
    pub status: u16,
}

impl RecordedRequest {
    /// The first header of that (case-insensitive) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The first model key the request carried, wherever its protocol puts it.
    pub fn key(&self) -> Option<String> {
        keys::offered(&self.headers, &self.query).into_iter().next()
    }
}

impl fmt::Debug for RecordedRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers, query and body may hold keys: a failing assertion must not print them.
        out.debug_struct("RecordedRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Keeps the newest requests and tells waiters about each.
pub(crate) struct Recorder {
    newest: Mutex<VecDeque<RecordedRequest>>,
    keep: usize,
    log: Option<Mutex<File>>,
    count: watch::Sender<u64>,
}

impl Recorder {
    /// Opens the log, if any, for appending.
    pub(crate) fn open(keep: usize, log: Option<&Path>) -> io::Result<Self> {
        let open = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(path)
                .map(Mutex::new)
        };
        Ok(Self {
            newest: Mutex::default(),
            keep: keep.max(1),
            log: log.map(open).transpose()?,
            count: watch::Sender::new(0),
        })
    }

    /// Remembers one request; a log that cannot be written is reported, not fatal.
    pub(crate) fn add(&self, request: RecordedRequest) {
        if let Some(log) = &self.log
            && let Err(error) = append(log, &request)
        {
            tracing::warn!(%error, "the request log could not be written");
        }
        {
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            while newest.len() >= self.keep {
                newest.pop_front();
            }
            newest.push_back(request);
        }
        self.count.send_modify(|count| *count += 1);
    }

    /// A copy of what is remembered, oldest first.
    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().cloned().collect()
    }

    /// The oldest remembered request that satisfies `wanted`.
    pub(crate) fn find(
        &self,
        wanted: &dyn Fn(&RecordedRequest) -> bool,
    ) -> Option<RecordedRequest> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().find(|request| wanted(request)).cloned()
    }

    /// Changes whenever a request was added.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
}

fn append(log: &Mutex<File>, request: &RecordedRequest) -> io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    log.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .write_all(&line)
}

/// Milliseconds since the Unix epoch; 0 on a clock before it.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
