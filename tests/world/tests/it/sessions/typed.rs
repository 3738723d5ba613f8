//! A program at work that a person watches, interrupts or answers: output read as it comes.

use crate::sessions::stage::LONG;
use anyhow::{Context as _, bail};
use handler_testkit::World;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A running `handler`.
pub(crate) struct Typed {
    child: Child,
    output: Receiver<Vec<u8>>,
    terminal: Option<File>,
    /// Everything it printed so far.
    pub(crate) shown: String,
}

impl Typed {
    /// Starts it in a folder, its output in a pipe.
    pub(crate) fn piped(world: &World, folder: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = world.command();
        command.args(args).current_dir(folder);
        command.stdin(Stdio::null());
        let (reader, writer) = std::io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        // The command holds the writing end: without it the pipe never ends.
        drop(command);
        Ok(Self {
            child,
            output: follow(reader),
            terminal: None,
            shown: String::new(),
        })
    }

    /// Starts it in a folder on a terminal of its own.
    pub(crate) fn on_terminal(world: &World, folder: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?.into_string()?;
        let side = OwnedFd::from(File::options().read(true).write(true).open(name)?);
        let mut command = world.command();
        command.args(args).current_dir(folder);
        command.stdin(side.try_clone()?).stdout(side.try_clone()?);
        command.stderr(side);
        let child = command.spawn()?;
        drop(command);
        let terminal = File::from(terminal);
        Ok(Self {
            child,
            output: follow(terminal.try_clone()?),
            terminal: Some(terminal),
            shown: String::new(),
        })
    }

    /// Waits until a text was printed.
    pub(crate) fn shows(&mut self, text: &str) -> anyhow::Result<()> {
        let end = Instant::now() + LONG;
        while !self.shown.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => bail!("no `{text}` ({error}) in {}", self.shown),
            }
        }
        Ok(())
    }

    /// Types a line.
    pub(crate) fn enter(&mut self, line: &str) -> anyhow::Result<()> {
        let terminal = self.terminal.as_mut().context("no terminal")?;
        Ok(terminal.write_all(format!("{line}\n").as_bytes())?)
    }

    /// What Ctrl-C does.
    pub(crate) fn interrupt(&self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process")?;
        Ok(kill_process(pid, Signal::INT)?)
    }

    /// Interrupts it between turns until it leaves: one may come before it knows that the turn is over.
    pub(crate) fn leaves(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + LONG;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                bail!("it does not leave; it showed {}", self.shown);
            }
            self.interrupt()?;
            std::thread::sleep(Duration::from_millis(500));
        }
        anyhow::ensure!(self.ends()? == 130, "{}", self.shown);
        Ok(())
    }

    /// Waits until it ends by itself: its exit code.
    pub(crate) fn ends(&mut self) -> anyhow::Result<i32> {
        let end = Instant::now() + LONG;
        loop {
            let step = Duration::from_millis(20);
            match self.output.recv_timeout(step) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(step),
            }
            if let Some(status) = self.child.try_wait()? {
                for bytes in self.output.try_iter() {
                    self.shown.push_str(&String::from_utf8_lossy(&bytes));
                }
                return status.code().context(status.to_string());
            }
            if Instant::now() > end {
                bail!("it does not end; it showed {}", self.shown);
            }
        }
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Reads in a thread of its own until the other side is closed.
fn follow(mut from: impl std::io::Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
