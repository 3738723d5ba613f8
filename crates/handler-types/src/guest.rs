//! The protocol between the host and `handler-guest`, version 1.
//!
//! A link is one Unix stream. Each frame is `u32` big-endian length of what follows (1 to
//! [`MAX_FRAME`]), one kind byte, then the payload:
//!
//! | kind | direction | payload |
//! |---|---|---|
//! | [`KIND_JSON`] | both | one JSON document: [`Request`] to the guest, [`Message`] from it |
//! | [`KIND_OUTPUT`] | guest → host | `u32` process, `u64` offset, `u8` stream, bytes |
//! | [`KIND_INPUT`] | host → guest | `u32` process, `u64` offset, bytes |
//! | [`KIND_FILE`] | both | `u32` request id, bytes; an empty one ends the file |
//!
//! Output is numbered by its byte offset in the process's merged output (all streams together) and
//! kept until acknowledged; at most [`OUTPUT_WINDOW`] unacknowledged bytes exist per process, beyond
//! which the guest stops reading from it. Input carries its offset too: bytes the guest already has
//! are ignored, so that sending again after a lost connection doubles nothing. The host is never more
//! than [`INPUT_WINDOW`] ahead of what the guest says the process has taken
//! ([`ProcessInfo::received`], then [`Message::InputCredit`]), so that one process that does not read
//! stalls no other. [`crate::frame`] reads and writes frames.
//!
//! A TCP connection to a port inside ([`Op::Connect`]) is numbered, read and written as a process is; its
//! output is what the server sends, its input what it gets, and closing the input is a half-close.
//!
//! The guest speaks first with [`Message::Hello`]. The outer frame never changes; the newer side adapts.

use serde::{Deserialize, Serialize};

pub use crate::guest_answer::{Message, Reply};
pub use crate::guest_error::{GuestError, GuestErrorCode};
pub use crate::guest_files::{FileEntry, FileKind, UnpackLimits, Unpacked, WatchEvent, WatchKind};
pub use crate::guest_process::{
    Exit, ProcessInfo, ProcessKind, ProcessNumber, ProcessSpec, TtySize,
};
pub use crate::guest_system::{GuestStats, ListeningPort, SystemProcess};

/// The version both sides here speak.
pub const PROTOCOL: u32 = 1;
/// Longest frame, in bytes, kind byte included.
pub const MAX_FRAME: usize = 1024 * 1024;
/// Most output bytes of one process that may be unacknowledged.
pub const OUTPUT_WINDOW: u64 = 1024 * 1024;
/// Most input bytes of one process that the host may send beyond what the process has taken.
pub const INPUT_WINDOW: u64 = 256 * 1024;
/// Most bytes of one chunk of output, input or file content.
pub const MAX_CHUNK: usize = 64 * 1024;
/// Most bytes of a file read that may be unacknowledged (see [`Op::Credit`]).
pub const FILE_WINDOW: u64 = 1024 * 1024;

/// Seconds for which a connection to a port stays without anyone attached to it.
pub const CONNECTION_GRACE_SECS: u64 = 30;

/// Kind byte of a JSON frame.
pub const KIND_JSON: u8 = 1;
/// Kind byte of an output frame.
pub const KIND_OUTPUT: u8 = 2;
/// Kind byte of an input frame.
pub const KIND_INPUT: u8 = 3;
/// Kind byte of a file content frame.
pub const KIND_FILE: u8 = 4;

/// Which stream a chunk of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Stream {
    /// Standard output.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
    /// A terminal's output.
    Pty = 3,
}

impl Stream {
    /// Reads the wire byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Pty),
            _ => None,
        }
    }
}

/// What the host asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Chosen by the host, not 0; the response carries it. 0 asks for no response.
    pub id: u32,
    /// What to do.
    #[serde(flatten)]
    pub op: Op,
}

/// The operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Op {
    /// Starts a process. Answer: [`Reply::Started`]. A `key` already used answers the process it started.
    Start {
        /// What to run.
        spec: ProcessSpec,
    },
    /// Sends the process's output from `from` on to this connection (and to no other any more).
    /// `from` must not be below what was acknowledged. Answer: [`Reply::Process`].
    Attach {
        /// The process.
        process: ProcessNumber,
        /// Offset of the first byte wanted.
        from: u64,
    },
    /// Stops sending the process's output to this connection; the process goes on.
    Detach {
        /// The process.
        process: ProcessNumber,
    },
    /// Lets the guest forget output below `up_to`. Sent with request id 0.
    Ack {
        /// The process.
        process: ProcessNumber,
        /// First offset still needed.
        up_to: u64,
    },
    /// Closes standard input once all input up to `at` has been taken. On a terminal this types Ctrl-D.
    CloseStdin {
        /// The process.
        process: ProcessNumber,
        /// Total length of the input.
        at: u64,
    },
    /// Sends a signal to the process, or to its whole tree.
    Signal {
        /// The process.
        process: ProcessNumber,
        /// Signal number, 1–31.
        signal: i32,
        /// Every descendant as well, however it detached itself.
        tree: bool,
    },
    /// Sets the size of the process's terminal.
    Resize {
        /// The process.
        process: ProcessNumber,
        /// Columns, 1–10000.
        cols: u16,
        /// Rows, 1–10000.
        rows: u16,
    },
    /// Lists processes and connections. Answer: [`Reply::Processes`].
    Processes,
    /// Connects to a TCP port inside, at 127.0.0.1 or ::1. Answer: [`Reply::Started`]. A `key` already used
    /// answers the connection it made. A connection nobody is attached to is closed after
    /// [`CONNECTION_GRACE_SECS`].
    Connect {
        /// The port, not 0.
        port: u16,
        /// Chosen by the host, at most 256 bytes. Empty: no key.
        key: String,
    },
    /// Lists listening TCP sockets. Answer: [`Reply::Ports`].
    Ports,
    /// Lists every process in the sandbox, whoever started it. Answers: [`Reply::Table`].
    Table,
    /// Forgets an ended process and its output; ends and forgets a connection.
    Forget {
        /// The process.
        process: ProcessNumber,
    },
    /// Describes a path. Answer: [`Reply::Entry`].
    Stat {
        /// Absolute path.
        path: String,
    },
    /// Lists a folder, which may itself be named by a link. Answers: [`Reply::Entries`].
    List {
        /// Absolute path.
        path: String,
        /// 1 = what is in the folder itself only; at most 32.
        depth: u32,
    },
    /// Makes a folder.
    Mkdir {
        /// Absolute path.
        path: String,
        /// Parents too, and no error when it exists.
        parents: bool,
        /// Permission bits.
        mode: Option<u32>,
    },
    /// Renames a path; within one file system.
    Move {
        /// Absolute path.
        from: String,
        /// Absolute path.
        to: String,
        /// Replace what is there.
        overwrite: bool,
    },
    /// Removes a path.
    Remove {
        /// Absolute path.
        path: String,
        /// A folder with all it holds.
        recursive: bool,
    },
    /// Sets permission bits. A link named by `path` is followed, links below it are left alone.
    Chmod {
        /// Absolute path.
        path: String,
        /// Permission bits.
        mode: u32,
        /// All that a folder holds as well.
        recursive: bool,
    },
    /// Reads a file. Answer: [`Reply::Reading`], then file frames with this request's id, the last one empty.
    /// At most [`FILE_WINDOW`] bytes are sent ahead of the credit given.
    Read {
        /// Absolute path.
        path: String,
        /// First byte.
        offset: u64,
        /// Most bytes; absent: to the end.
        length: Option<u64>,
    },
    /// Gives a read (`request` is its id) room for `bytes` more. Sent with request id 0.
    Credit {
        /// The read's request id.
        request: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Stops a read, a write or a watch under way; after the answer nothing more comes for it.
    CancelFile {
        /// Its request id.
        request: u32,
    },
    /// Writes a file from the file frames that follow with this request's id; the empty one ends it. It is written
    /// beside its place and renamed, so a reader never sees half of it. A link is written through. Answer, at the
    /// end: [`Reply::Written`].
    Write {
        /// Absolute path.
        path: String,
        /// Permission bits of a new file (default 0644); one that exists keeps its own.
        mode: Option<u32>,
        /// Make parent folders.
        parents: bool,
        /// Refuse when something is there already.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        create_only: bool,
        /// SHA-256 the content must have (lower-case hex); with another one nothing is changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    /// Tells a regular file's SHA-256. Answer: [`Reply::Written`].
    Hash {
        /// Absolute path.
        path: String,
    },
    /// Tells what changes at a path, or below it. Answer: [`Reply::Done`], then [`Message::Watched`] with this
    /// request's id until [`Message::WatchEnded`] or [`Op::CancelFile`].
    Watch {
        /// Absolute path of a folder or file; a link is followed.
        path: String,
        /// Folders below as well; links among them are not followed.
        recursive: bool,
    },
    /// Reads a folder with all it holds, or one file, as a tar archive (GNU format, names relative to the folder).
    /// Answer: [`Reply::Reading`] with size 0, then as for a read; before the last, empty frame
    /// [`Message::Packed`].
    Pack {
        /// Absolute path; a link is followed, links below are kept as links.
        path: String,
        /// Keep further names of one file as such; else each is a file of its own.
        #[serde(default)]
        hard_links: bool,
    },
    /// Unpacks the tar archive of the file frames that follow with this request's id (the empty one ends it) into
    /// a folder, which is made if it is not there. Nothing is written outside it and no link is followed. Answer,
    /// at the end: [`Reply::Unpacked`].
    Unpack {
        /// Absolute path of the folder.
        path: String,
        /// Limits; beyond them it fails, and what was written until then stays.
        limits: UnpackLimits,
    },
    /// Statistics. Answer: [`Reply::Stats`].
    Stats,
    /// Ends everything in the sandbox and the guest itself.
    Shutdown,
}
