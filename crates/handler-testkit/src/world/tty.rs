//! The command line on a terminal of ours, as a person has it.

use super::World;
use crate::inside::{LONG, show};
use crate::wait::eventually;
use anyhow::{Context as _, bail};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

/// A terminal of ours with `handler` in it.
#[derive(Debug)]
pub struct Tty {
    master: File,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl World {
    /// Runs `handler <args>` on a terminal of so many columns and rows.
    ///
    /// # Errors
    /// When there is no terminal or no `setsid`.
    pub fn on_tty(&self, args: &[&str], size: (u16, u16)) -> anyhow::Result<Tty> {
        self.on_tty_with(args, size, &[])
    }

    /// The same with more in its environment.
    ///
    /// # Errors
    /// As [`World::on_tty`].
    pub fn on_tty_with(
        &self,
        args: &[&str],
        size: (u16, u16),
        env: &[(&str, &str)],
    ) -> anyhow::Result<Tty> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str()?)?;
        let master = File::from(master);
        set_size(&master, size)?;
        // A session of its own with this as its terminal: what is resized is told to it.
        let child = self
            .tool("setsid")
            .args(["--ctty", "--wait"])
            .arg(&self.program)
            .args(args)
            .env("TERM", "xterm-256color")
            .envs(env.iter().copied())
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()
            .context("start setsid")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, into) = (master.try_clone()?, Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            // It ends with an error when the program has let go of the terminal.
            while let Ok(count) = reader.read(&mut block) {
                let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend_from_slice(&block[..count]);
            }
        });
        Ok(Tty {
            master,
            seen,
            child,
        })
    }
}

impl Tty {
    /// All that came so far.
    #[must_use]
    pub fn text(&self) -> String {
        show(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Types.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn type_in(&self, keys: &str) -> anyhow::Result<()> {
        Ok((&self.master).write_all(keys.as_bytes())?)
    }

    /// Makes it another size: columns, rows.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resize(&self, size: (u16, u16)) -> anyhow::Result<()> {
        set_size(&self.master, size)
    }

    /// Waits until a text has come.
    ///
    /// # Errors
    /// When it does not, with what came.
    pub async fn until(&self, wanted: &str) -> anyhow::Result<()> {
        let found = eventually(wanted, LONG, || async {
            self.text().contains(wanted).then_some(())
        })
        .await;
        found.with_context(|| format!("on the screen: {:?}", self.text()))
    }

    /// Waits for the program's end: its code.
    ///
    /// # Errors
    /// When it does not end, or by a signal.
    pub async fn ended(&mut self) -> anyhow::Result<i32> {
        let end = std::time::Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return status.code().context("a code");
            }
            if std::time::Instant::now() > end {
                bail!("it does not end: {:?}", self.text());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn set_size(terminal: &File, (cols, rows): (u16, u16)) -> anyhow::Result<()> {
    let size = Winsize {
        ws_col: cols,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}
