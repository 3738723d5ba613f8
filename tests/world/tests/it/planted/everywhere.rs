//! What is searched: answers, streams, environments, memories, folders.

use crate::search::{holds, memory_holds, memory_with, search_files};
use crate::secrets::all_answers;
use crate::support::{LONG, Sandbox, is_root};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually, skip};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

/// What is searched, and for what.
pub(crate) struct Everywhere<'a> {
    pub(crate) test: &'a str,
    pub(crate) world: &'a World,
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) wanted: &'a [String],
    /// What is found where the key would be, were it there.
    pub(crate) stand_in: &'a str,
}

impl Everywhere<'_> {
    /// Every answer of the API and of the command line's lists.
    pub(crate) async fn answers(&self, process: u32) -> anyhow::Result<()> {
        let answers = all_answers(self.world, &self.sandbox.id, process).await?;
        ensure!(answers.len() > 30, "{} answers", answers.len());
        for (path, answer) in answers {
            ensure!(
                !holds(answer.as_bytes(), self.wanted),
                "{path} answers with it"
            );
        }
        let id = self.sandbox.id.as_str();
        for args in [
            &["--json", "secret", "list"][..],
            &["--json", "provider", "list"],
            &["--json", "account", "list"],
            &["--json", "sandbox", "list"],
            &["--json", "sandbox", "egress", id],
            &["--json", "network", "learn", id],
            &["--json", "audit"],
            &["sandbox", "logs", id],
        ] {
            let told = self.world.cli(args).await?;
            let all = [told.stdout, told.stderr].concat();
            ensure!(!holds(&all, self.wanted), "{args:?}");
        }
        Ok(())
    }

    /// Environment and arguments of every process, and memory of all but the filter.
    pub(crate) async fn processes(&self, filter: i32) -> anyhow::Result<()> {
        let members = self.world.processes();
        ensure!(members.len() > 3, "{members:?}");
        for member in &members {
            for what in ["environ", "cmdline"] {
                let text =
                    std::fs::read(format!("/proc/{}/{what}", member.pid)).unwrap_or_default();
                ensure!(!holds(&text, self.wanted), "{what} of {member:?}");
            }
        }
        if !is_root() {
            skip(self.test, "memory of processes: only root reads it");
            return Ok(());
        }
        // Were this not so, the search would find nothing anywhere.
        ensure!(
            memory_holds(filter, self.wanted)?,
            "the filter does not have it"
        );
        let stand_in = [self.stand_in.to_owned()];
        let mut with_stand_in = 0;
        for member in members.iter().filter(|member| member.pid != filter) {
            // Gone in the meantime, or what was on its way is let go in a moment.
            let clean = eventually("memory without it", LONG, || async {
                match memory_with(member.pid, self.wanted) {
                    Ok(Some(_)) => None,
                    Ok(None) | Err(_) => Some(()),
                }
            });
            let region = || memory_with(member.pid, self.wanted);
            clean
                .await
                .with_context(|| format!("{member:?}: {:?}", region()))?;
            with_stand_in += usize::from(memory_holds(member.pid, &stand_in).unwrap_or_default());
        }
        ensure!(with_stand_in > 1, "{with_stand_in} memories were searched");
        Ok(())
    }

    /// What only exists inside: its `/tmp`, `/run`, `/dev/shm`.
    pub(crate) fn folders_inside(&self) -> anyhow::Result<()> {
        if !is_root() {
            skip(self.test, "folders inside: only root sees them");
            return Ok(());
        }
        let root = self.root_inside()?;
        let (mut found, mut read) = (Vec::new(), 0);
        for folder in ["tmp", "run", "dev/shm", "home/agent"] {
            search_files(&root.join(folder), self.wanted, &mut found, &mut read)?;
        }
        ensure!(found.is_empty() && read > 0, "{found:?} of {read} files");
        Ok(())
    }

    fn root_inside(&self) -> anyhow::Result<std::path::PathBuf> {
        let id = self.sandbox.id.as_bytes();
        let members = self.world.processes();
        let inside = members.iter().map(|member| member.pid).find(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let variable = [b"HANDLER_SANDBOX=", id].concat();
            holds(&environ, &[String::from_utf8_lossy(&variable).into_owned()])
        });
        Ok(Path::new("/proc")
            .join(inside.context("a process inside")?.to_string())
            .join("root"))
    }
}

/// The stream of events, from now on.
pub(crate) struct Heard {
    stream: TcpStream,
    reader: JoinHandle<Vec<u8>>,
}

impl Heard {
    pub(crate) fn start(world: &World) -> anyhow::Result<Self> {
        let port = world.port()?;
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let token = world.token()?;
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut reading = stream.try_clone()?;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            // An end in the middle is the end, too: the daemon is killed.
            let _ = reading.read_to_end(&mut all);
            all
        });
        Ok(Self { stream, reader })
    }

    /// Ends it. `some`: a text that was heard, else there is nothing to be searched.
    pub(crate) fn has_not(self, wanted: &[String], some: &str) -> anyhow::Result<()> {
        // Already closed when the daemon is gone.
        let _ = self.stream.shutdown(Shutdown::Both);
        let all = self.reader.join().expect("no panic");
        ensure!(all.starts_with(b"HTTP/1.1 200"), "{all:?}");
        ensure!(holds(&all, &[some.to_owned()]), "nothing was heard");
        ensure!(!holds(&all, wanted), "an event has it");
        Ok(())
    }
}

/// Every file there is; the daemon has ended, so that what is written last is there, too.
pub(crate) fn files(world: &World, wanted: &[String]) -> anyhow::Result<()> {
    let scratch = world.scratch();
    let sealed = scratch.folder("data").join("secrets.json.sealed");
    ensure!(std::fs::metadata(sealed)?.len() > 48, "it is kept, sealed");
    // Deep in a file of another kind.
    let control = scratch.folder("cache").join("control");
    let planted = [&[0xff; 5000][..], wanted[0].as_bytes()].concat();
    std::fs::write(&control, planted)?;
    let (mut found, mut read) = (Vec::new(), 0);
    search_files(scratch.path(), wanted, &mut found, &mut read)?;
    ensure!(found == [control.display().to_string()], "{found:?}");
    ensure!(read > 10, "only {read} files were looked at");
    Ok(())
}
