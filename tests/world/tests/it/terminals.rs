//! Terminals: a real one of ours on a real one inside, resized with it, and still there after the daemon was away.

use crate::support::{LONG, Sandbox, has_tools, show, world};
use anyhow::{Context as _, bail};
use handler_testkit::{World, eventually};
use handler_types::api::{CreateTerminal, StreamCommand};
use handler_types::guest::TtySize;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};

/// A terminal of ours with a program in it.
struct Screen {
    master: File,
    seen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Screen {
    fn run(world: &World, args: &[&str], size: (u16, u16)) -> anyhow::Result<Self> {
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
        let program = world.command().get_program().to_owned();
        let mut command = std::process::Command::new("setsid");
        // A session of its own with this as its terminal: what is resized is told to it.
        command.args(["--ctty", "--wait"]).arg(program).args(args);
        let env = world.command();
        let env = env
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command
            .env_clear()
            .envs(env)
            .env("TERM", "xterm-256color")
            .current_dir(world.work());
        let child = command
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, into) = (master.try_clone()?, seen.clone());
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            // It ends with an error when the program has let go of the terminal.
            while let Ok(count) = reader.read(&mut block) {
                into.lock()
                    .expect("no panic")
                    .extend_from_slice(&block[..count]);
            }
        });
        Ok(Self {
            master,
            seen,
            child,
        })
    }

    fn text(&self) -> String {
        show(&self.seen.lock().expect("no panic"))
    }

    fn type_in(&self, keys: &str) -> anyhow::Result<()> {
        Ok((&self.master).write_all(keys.as_bytes())?)
    }

    async fn until(&self, wanted: &str) -> anyhow::Result<()> {
        let found = eventually(wanted, LONG, || async {
            self.text().contains(wanted).then_some(())
        })
        .await;
        found.with_context(|| format!("on the screen: {:?}", self.text()))
    }

    async fn ended(&mut self) -> anyhow::Result<i32> {
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

impl Drop for Screen {
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

#[tokio::test]
async fn a_shell_has_our_size_follows_it_echoes_and_ends_with_its_code() -> anyhow::Result<()> {
    if !has_tools("a_shell_has_our_size", &["setsid"]) {
        return Ok(());
    }
    let world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let mut screen = Screen::run(&world, &["sandbox", "shell", "box"], (91, 37))?;
    // Typed before the shell is there: kept for it.
    screen.type_in("echo \"is $((40+2))\"\r")?;
    screen.until("is 42").await?;
    screen.type_in("stty size; true once\r")?;
    screen.until("37 91").await?;
    // What is typed now is echoed by the terminal inside, and by no other.
    assert_eq!(
        screen.text().matches("true once").count(),
        1,
        "{:?}",
        screen.text()
    );
    set_size(&screen.master, (120, 50))?;
    eventually("the new size inside", LONG, || async {
        screen.type_in("stty size\r").ok()?;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        screen.text().contains("50 120").then_some(())
    })
    .await?;
    // Ctrl-C is a key for the program inside, not for us.
    screen.type_in("sleep 9999\r")?;
    eventually("sleep to run", LONG, || async {
        let seen = Sandbox {
            client: world.client(),
            id: "box".into(),
        };
        seen.sh("cat /proc/[0-9]*/comm")
            .await
            .ok()?
            .stdout
            .contains("sleep")
            .then_some(())
    })
    .await?;
    screen.type_in("\u{3}")?;
    screen.type_in("echo \"grüße $((1+1))\"; tty\r")?;
    screen.until("grüße 2").await?;
    screen.until("/dev/pts/").await?;
    screen.type_in("exit 7\r")?;
    assert_eq!(screen.ended().await?, 7, "{:?}", screen.text());
    Ok(())
}

#[tokio::test]
async fn a_terminal_survives_the_daemon_and_is_resized_over_the_api() -> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let request = CreateTerminal {
        argv: ["sh"].map(str::to_owned).to_vec(),
        size: Some(TtySize {
            cols: 100,
            rows: 30,
        }),
        ..Default::default()
    };
    let terminal = sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?;
    assert_eq!(terminal.tty, request.size);
    let mut feed = sandbox.attach(terminal.process, None).await?;
    feed.type_in("stty size; mark=before; echo ma''rk\n")
        .await?;
    let seen = feed.until("mark\r\n").await?;
    assert!(seen.contains("30 100"), "{seen:?}");
    feed.send(&StreamCommand::Resize { cols: 61, rows: 17 })
        .await?;
    world.kill9()?;
    world.start_daemon().await?;
    let listed = sandbox.client.terminals(&sandbox.id).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].process, terminal.process);
    let mut feed = sandbox.attach(terminal.process, None).await?;
    feed.send(&StreamCommand::Resize { cols: 62, rows: 18 })
        .await?;
    feed.type_in("stty size; echo \"still $mark\"; exit 5\n")
        .await?;
    let (rest, exit) = feed.rest().await?;
    let rest = show(&rest);
    assert!(
        rest.contains("18 62") && rest.contains("still before"),
        "{rest:?}"
    );
    assert_eq!(exit.code, 5);
    for size in [
        TtySize { cols: 0, rows: 1 },
        TtySize {
            cols: 1,
            rows: 60_000,
        },
    ] {
        let wrong = CreateTerminal {
            size: Some(size),
            ..Default::default()
        };
        assert!(
            sandbox
                .client
                .create_terminal(&sandbox.id, &wrong)
                .await
                .is_err()
        );
    }
    Ok(())
}
