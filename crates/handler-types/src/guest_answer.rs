//! What the guest says: messages of its own and the answers to requests ([`crate::guest::Op`]).

use crate::guest_error::GuestError;
use crate::guest_files::{FileEntry, Unpacked, WatchEvent};
use crate::guest_process::{Exit, ProcessInfo, ProcessNumber};
use crate::guest_system::{GuestStats, ListeningPort, SystemProcess};
use serde::{Deserialize, Serialize};

/// What the guest says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Message {
    /// First on every connection.
    Hello {
        /// [`PROTOCOL`] of the guest.
        protocol: u32,
        /// Version of the program.
        version: String,
        /// Random per guest start: tells a restarted guest from the same one.
        boot: String,
    },
    /// Answer to a request.
    Reply {
        /// Its id.
        id: u32,
        /// The result.
        reply: Reply,
    },
    /// A request failed.
    Failed {
        /// Its id.
        id: u32,
        /// Why.
        error: GuestError,
    },
    /// A process ended; sent on every connection, after which its remaining output still comes.
    Exited {
        /// The process.
        process: ProcessNumber,
        /// How.
        exit: Exit,
    },
    /// All output of an ended process has been sent on this connection (`end` is its total length). What a
    /// descendant in the background still writes a moment after the process's end is not part of it.
    OutputEnd {
        /// The process.
        process: ProcessNumber,
        /// Total length of its output.
        end: u64,
    },
    /// The process has taken input; sent on the connection that sent input for it last. Several steps
    /// may be told as one.
    InputCredit {
        /// The process.
        process: ProcessNumber,
        /// Input bytes taken so far; [`INPUT_WINDOW`] more may be sent.
        received: u64,
    },
    /// Something changed where a watch looks.
    Watched {
        /// The watch's request id.
        request: u32,
        /// In order.
        events: Vec<WatchEvent>,
    },
    /// A watch sees nothing any more: its path is gone.
    WatchEnded {
        /// The watch's request id.
        request: u32,
    },
    /// A pack is complete but for its last frame.
    Packed {
        /// Its request id.
        request: u32,
        /// Paths that are not in the archive, with the reason; the first hundred.
        skipped: Vec<String>,
        /// How many there are.
        skipped_count: u64,
    },
    /// An input frame was thrown away: there is a gap before it, or it goes beyond the window, or the process
    /// is unknown or has no standard input. Input goes on at `received` (after a gap: at what was sent before).
    InputRefused {
        /// The process.
        process: ProcessNumber,
        /// Input bytes taken so far.
        received: u64,
        /// Why.
        error: GuestError,
    },
}

/// Results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Reply {
    /// Done.
    Done,
    /// A process was started (or found by its key).
    Started {
        /// The process.
        process: ProcessInfo,
    },
    /// One process.
    Process {
        /// The process.
        process: ProcessInfo,
    },
    /// All processes the guest knows; a long list comes as several replies with one id.
    Processes {
        /// By number.
        processes: Vec<ProcessInfo>,
        /// Another reply with the same id follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// Listening sockets.
    Ports {
        /// By port.
        ports: Vec<ListeningPort>,
    },
    /// Every process; a long list comes as several replies with one id.
    Table {
        /// By pid.
        processes: Vec<SystemProcess>,
        /// Another reply with the same id follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// A path.
    Entry {
        /// The entry.
        entry: FileEntry,
    },
    /// The entries of a folder; a long list comes as several replies with one id.
    Entries {
        /// By path.
        entries: Vec<FileEntry>,
        /// More existed than the guest lists (100 000).
        truncated: bool,
        /// Another reply with the same id follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// A read begins.
    Reading {
        /// Size of the whole file in bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Modification time, milliseconds since the epoch.
        modified_ms: i64,
    },
    /// A file was written.
    Written {
        /// Bytes.
        size: u64,
        /// SHA-256, lower-case hex.
        sha256: String,
    },
    /// An archive was unpacked.
    Unpacked {
        /// What was made.
        unpacked: Unpacked,
    },
    /// Statistics.
    Stats {
        /// The figures.
        stats: GuestStats,
    },
}
