//! A guest in a folder of its own, and a simple host for it. Every wait has a deadline.

use handler_types::frame::{Frame, FrameDecoder, encode, encode_input, encode_json};
use handler_types::guest::{
    Exit, GuestError, Message, Op, ProcessInfo, ProcessSpec, Reply, Request, Stream,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything; far above what is needed, as machines are shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const PROGRAM: &str = env!("CARGO_BIN_EXE_handler-guest");

/// A running guest.
pub(crate) struct Sandbox {
    pub(crate) folder: tempfile::TempDir,
    child: Child,
    socket: PathBuf,
    /// Dies with what is in it when its parent is killed.
    is_init: bool,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(more: &[&str]) -> Self {
        Self::spawn(Command::new(PROGRAM), more)
    }

    /// As PID 1 of namespaces of its own, with the right to mount there.
    pub(crate) fn as_init(test: &str) -> Option<Self> {
        const NAMESPACES: [&str; 4] = ["-rpfm", "--mount-proc", "--kill-child", "--"];
        let tried = Command::new("unshare")
            .args(NAMESPACES)
            .arg("true")
            .output();
        if !tried.is_ok_and(|output| output.status.success()) {
            skip(test, "`unshare` makes no namespaces here");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).arg(PROGRAM);
        let mut sandbox = Self::spawn(command, &[]);
        sandbox.is_init = true;
        Some(sandbox)
    }

    fn spawn(mut command: Command, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("guest.sock");
        let child = command
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .arg("--workdir")
            .arg(folder.path())
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            folder,
            child,
            socket,
            is_init: false,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// A connection whose hello was read.
    pub(crate) fn connect(&self) -> Host {
        let stream = wait_for("the guest listens", || {
            UnixStream::connect(&self.socket).ok()
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut host = Host {
            stream,
            decoder: FrameDecoder::new(),
            held: VecDeque::new(),
            last_id: 0,
            boot: String::new(),
        };
        match host.next() {
            Seen::Message(Message::Hello { protocol, boot, .. }) => {
                assert_eq!(protocol, handler_types::guest::PROTOCOL);
                host.boot = boot;
            }
            other => panic!("no hello but {other:?}"),
        }
        host
    }

    /// Waits until the guest itself ended.
    pub(crate) fn wait_end(&mut self) -> Option<i32> {
        wait_for("the guest ends", || self.child.try_wait().unwrap()).code()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            return;
        }
        if self.is_init {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return;
        }
        // Ends what runs below it too, which a kill would leave behind.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came from the guest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Message(Message),
    Output {
        process: u32,
        offset: u64,
        stream: Stream,
        data: Vec<u8>,
    },
    File {
        request: u32,
        data: Vec<u8>,
    },
    End,
}

/// The host's side of one connection.
pub(crate) struct Host {
    pub(crate) stream: UnixStream,
    decoder: FrameDecoder,
    /// Seen while something else was waited for.
    held: VecDeque<Seen>,
    last_id: u32,
    pub(crate) boot: String,
}

/// All a process said, and how it ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit: Exit,
}

impl Host {
    pub(crate) fn send(&mut self, op: Op) -> u32 {
        self.last_id += 1;
        self.send_as(self.last_id, op);
        self.last_id
    }

    pub(crate) fn send_as(&mut self, id: u32, op: Op) {
        let mut bytes = Vec::new();
        encode_json(&Request { id, op }, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn send_frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn input(&mut self, process: u32, offset: u64, data: &[u8]) {
        let mut bytes = Vec::new();
        encode_input(process, offset, data, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next thing from the wire; panics after the deadline.
    fn read(&mut self) -> Seen {
        loop {
            match self.decoder.next().unwrap() {
                Some(Frame::Json(document)) => {
                    return Seen::Message(serde_json::from_slice(&document).unwrap());
                }
                Some(Frame::Output {
                    process,
                    offset,
                    stream,
                    data,
                }) => {
                    return Seen::Output {
                        process,
                        offset,
                        stream,
                        data,
                    };
                }
                Some(Frame::File { request, data }) => return Seen::File { request, data },
                Some(other) => panic!("the guest sent {other:?}"),
                None => {}
            }
            let mut buffer = [0; 65536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Seen::End,
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Seen::End;
                }
                Err(error) => panic!("nothing came from the guest: {error}"),
            }
        }
    }

    /// The next thing, held or from the wire.
    pub(crate) fn next(&mut self) -> Seen {
        self.held.pop_front().unwrap_or_else(|| self.read())
    }

    /// The first thing that `want` takes; others are held for later.
    pub(crate) fn find<T>(&mut self, mut want: impl FnMut(&Seen) -> Option<T>) -> T {
        for (index, seen) in self.held.iter().enumerate() {
            if let Some(found) = want(seen) {
                self.held.remove(index);
                return found;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "not seen in time");
            let seen = self.read();
            if let Some(found) = want(&seen) {
                return found;
            }
            assert!(seen != Seen::End, "the guest closed the connection");
            self.held.push_back(seen);
        }
    }

    pub(crate) fn answer(&mut self, id: u32) -> Result<Reply, GuestError> {
        self.find(|seen| match seen {
            Seen::Message(Message::Reply { id: of, reply }) if *of == id => Some(Ok(reply.clone())),
            Seen::Message(Message::Failed { id: of, error }) if *of == id => {
                Some(Err(error.clone()))
            }
            _ => None,
        })
    }

    pub(crate) fn ask(&mut self, op: Op) -> Result<Reply, GuestError> {
        let id = self.send(op);
        self.answer(id)
    }

    pub(crate) fn start(&mut self, spec: ProcessSpec) -> Result<ProcessInfo, GuestError> {
        match self.ask(Op::Start { spec })? {
            Reply::Started { process } => Ok(process),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a shell command and attaches to it.
    pub(crate) fn shell(&mut self, command: &str) -> u32 {
        let process = self.start(shell(command)).unwrap().process;
        self.attach(process, 0);
        process
    }

    pub(crate) fn attach(&mut self, process: u32, from: u64) -> ProcessInfo {
        match self.ask(Op::Attach { process, from }).unwrap() {
            Reply::Process { process } => process,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn info(&mut self, process: u32) -> ProcessInfo {
        match self.ask(Op::Processes).unwrap() {
            Reply::Processes { processes, .. } => processes
                .into_iter()
                .find(|info| info.process == process)
                .unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The next piece of output of a process; `None` at its end.
    pub(crate) fn piece(&mut self, process: u32) -> Option<(u64, Stream, Vec<u8>)> {
        self.find(|seen| match seen {
            Seen::Output {
                process: of,
                offset,
                stream,
                data,
            } if *of == process => Some(Some((*offset, *stream, data.clone()))),
            Seen::Message(Message::OutputEnd { process: of, .. }) if *of == process => Some(None),
            _ => None,
        })
    }

    pub(crate) fn exit(&mut self, process: u32) -> Exit {
        self.find(|seen| match seen {
            Seen::Message(Message::Exited { process: of, exit }) if *of == process => Some(*exit),
            _ => None,
        })
    }

    /// Everything until the end of the output, acknowledged as it comes.
    pub(crate) fn drain(&mut self, process: u32) -> Told {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some((offset, stream, data)) = self.piece(process) {
            let up_to = offset + data.len() as u64;
            self.send_as(0, Op::Ack { process, up_to });
            match stream {
                Stream::Stderr => stderr.extend(data),
                Stream::Stdout | Stream::Pty => stdout.extend(data),
            }
        }
        let exit = self.exit(process);
        Told {
            stdout,
            stderr,
            exit,
        }
    }

    /// Runs a shell command to its end.
    pub(crate) fn run(&mut self, command: &str) -> Told {
        let process = self.shell(command);
        self.drain(process)
    }

    /// Output until it holds `text`.
    pub(crate) fn output_with(&mut self, process: u32, text: &str) -> String {
        let mut all = Vec::new();
        loop {
            let (_, _, data) = self.piece(process).unwrap_or_else(|| {
                let all = String::from_utf8_lossy(&all);
                panic!("the output ended without {text:?}: {all:?}")
            });
            all.extend(data);
            let so_far = String::from_utf8_lossy(&all);
            if so_far.contains(text) {
                return so_far.into_owned();
            }
        }
    }
}

pub(crate) fn shell(command: &str) -> ProcessSpec {
    ProcessSpec {
        argv: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
        ..ProcessSpec::default()
    }
}

/// Says that a test was not done. Not with a macro of the standard library, whose text the test
/// harness hides when the test passes.
pub(crate) fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}

/// Waits for a condition.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process can still run.
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| {
        let (_, rest) = text.rsplit_once(')').unwrap();
        !rest.trim_start().starts_with(['Z', 'X'])
    })
}
