//! Terminals: a real one of ours on a real one inside, resized with it, and still there after the daemon was away.

use crate::support::{LONG, Sandbox, has_tools, show, world};
use anyhow::Context as _;
use handler_testkit::eventually;
use handler_testkit::viewer::{Ended, Viewer, look};
use handler_types::guest::TtySize;
use handler_types::terminal::{CreateTerminal, TerminalCommand, TerminalState};

#[tokio::test]
async fn a_shell_has_our_size_follows_it_echoes_and_ends_with_its_code() -> anyhow::Result<()> {
    if !has_tools("a_shell_has_our_size", &["setsid"]) {
        return Ok(());
    }
    let world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let mut screen = world.on_tty(&["sandbox", "shell", "box"], (91, 37))?;
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
    screen.resize((120, 50))?;
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

async fn open(sandbox: &Sandbox, argv: &[&str], cols: u16, rows: u16) -> anyhow::Result<u32> {
    let request = CreateTerminal {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        size: Some(TtySize { cols, rows }),
        ..Default::default()
    };
    let made = sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?;
    assert_eq!(made.size, TtySize { cols, rows });
    Ok(made.terminal)
}

#[tokio::test]
async fn a_terminal_survives_the_daemon_and_is_resized_over_the_api() -> anyhow::Result<()> {
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let terminal = open(&sandbox, &["sh"], 100, 30).await?;
    let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
    viewer
        .type_in("stty size; mark=before; echo ma''rk\n")
        .await?;
    viewer.until_text("30 100").await?;
    viewer.until_text("\nmark").await?;
    viewer
        .send(&TerminalCommand::Take { cols: 61, rows: 17 })
        .await?;
    viewer
        .until(|v| v.screen.size().cols == 61 && v.owner)
        .await?;
    world.kill9()?;
    assert_eq!(viewer.rest().await?, Ended::Closed { retry: true });
    world.start_daemon().await?;
    let listed = sandbox.client.terminals(&sandbox.id).await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].terminal, terminal);
    let mut again = Viewer::attach(&sandbox, terminal, "?cols=62&rows=18").await?;
    assert!(again.owner);
    again.until_text("\nmark").await?;
    again
        .type_in("stty size; echo \"still $mark\"; exit 5\n")
        .await?;
    let exit = again.rest().await?;
    let text = again.screen.rows_text().join("\n");
    assert!(
        text.contains("18 62") && text.contains("still before"),
        "{text}"
    );
    assert!(
        matches!(exit, Ended::Exited(Some(exit)) if exit.code == 5),
        "{exit:?}"
    );
    // It is kept as it was until it is closed.
    let view = sandbox.client.terminal(&sandbox.id, terminal).await?;
    assert_eq!(
        (view.state, view.exit.map(|e| e.code)),
        (TerminalState::Ended, Some(5))
    );
    let mut late = Viewer::attach(&sandbox, terminal, "").await?;
    late.rest().await?;
    assert_eq!(look(&late.screen), look(&again.screen));
    world.kill9()?;
    world.start_daemon().await?;
    let kept = sandbox
        .client
        .terminal_screen(&sandbox.id, terminal, 0)
        .await?;
    assert_eq!(kept.rows.join("\n").trim_end(), text.trim_end());
    sandbox.client.close_terminal(&sandbox.id, terminal).await?;
    assert!(sandbox.client.terminals(&sandbox.id).await?.is_empty());
    for (cols, rows) in [(0, 1), (1, 60_000)] {
        assert!(open(&sandbox, &["sh"], cols, rows).await.is_err());
    }
    Ok(())
}

/// A viewer that was there from the start, and one that comes in the middle.
async fn both_see_the_same(
    sandbox: &Sandbox,
    argv: &[&str],
    drawn: &str,
    keys: &[(&str, &str)],
) -> anyhow::Result<()> {
    let terminal = open(sandbox, argv, 90, 28).await?;
    let mut stayed = Viewer::attach(sandbox, terminal, "").await?;
    stayed.until_text(drawn).await?;
    let mut came = Viewer::attach(sandbox, terminal, "?scrollback=100").await?;
    came.until_text(drawn).await?;
    // The rest of the first picture may still be on its way to either.
    settle(&mut stayed, &mut came)
        .await
        .with_context(|| format!("{argv:?} at first"))?;
    for (typed, shows) in keys {
        stayed.type_in(typed).await?;
        stayed.until_text(shows).await?;
        came.until_text(shows).await?;
        settle(&mut stayed, &mut came)
            .await
            .with_context(|| format!("{argv:?} after {typed:?}"))?;
        let mut third = Viewer::attach(sandbox, terminal, "?mode=read").await?;
        third
            .until_like(&stayed.screen)
            .await
            .with_context(|| format!("{argv:?} third"))?;
    }
    sandbox.client.close_terminal(&sandbox.id, terminal).await?;
    Ok(())
}

/// Lets two viewers of a program that waits for keys come to the same screen.
async fn settle(one: &mut Viewer, other: &mut Viewer) -> anyhow::Result<()> {
    let quiet = std::time::Duration::from_millis(300);
    let patience = std::time::Instant::now() + LONG;
    loop {
        for viewer in [&mut *one, &mut *other] {
            while let Ok(stepped) = tokio::time::timeout(quiet, viewer.step()).await {
                stepped?;
            }
        }
        // A busy machine can be silent for longer in the middle of a picture.
        if look(&one.screen) == look(&other.screen) || std::time::Instant::now() > patience {
            break;
        }
    }
    assert_eq!(look(&one.screen), look(&other.screen));
    Ok(())
}

#[tokio::test]
async fn who_comes_during_a_full_screen_program_sees_what_one_sees_who_never_left()
-> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let text: String = (1..=400)
        .map(|n| format!("line {n} größe 漢字 🎉 {}\n", "word ".repeat(n % 30)))
        .collect();
    sandbox
        .sh(&format!("cat > text.txt <<'END'\n{text}END"))
        .await?;
    if has_tools("less_is_seen_whole", &["less"]) {
        let keys = [
            (" ", "line 2"),
            ("/line 77\r", "line 77"),
            ("G", "(END)"),
            ("g", "line 1 "),
        ];
        both_see_the_same(&sandbox, &["less", "-M", "text.txt"], "line 1 ", &keys).await?;
    }
    if has_tools("vi_is_seen_whole", &["vi"]) {
        let keys = [
            (":set number\r", "  1 line 1"),
            ("/line 99\r", "99 line 99"),
            ("Oeinfügen \u{1b}", "einfügen"),
            (":split\r", "text.txt"),
        ];
        both_see_the_same(&sandbox, &["vi", "-n", "text.txt"], "line 1 ", &keys).await?;
    }
    if has_tools("curses_is_seen_whole", &["python3"]) {
        sandbox
            .sh(&format!("cat > c.py <<'END'{CURSES}END"))
            .await?;
        let keys = [
            ("\u{1b}OB", "picked 1"),
            ("x", "key x"),
            ("\u{1b}OB", "picked 2"),
        ];
        both_see_the_same(&sandbox, &["/usr/bin/python3", "c.py"], "picked 0", &keys).await?;
    }
    Ok(())
}

const CURSES: &str = r#"
import curses
def main(s):
    curses.start_color(); curses.use_default_colors()
    for n in range(1, 8): curses.init_pair(n, n, -1 if n % 2 else 8 - n)
    curses.mousemask(curses.ALL_MOUSE_EVENTS); curses.curs_set(0)
    picked, last = 0, ""
    while True:
        s.erase(); s.border()
        for row in range(8):
            s.addstr(2 + row, 3, "größe 漢字 🎉 row %d" % row, curses.color_pair(1 + row % 7) | (curses.A_REVERSE if row == picked else 0) | (curses.A_BOLD if row % 2 else 0))
        s.addstr(12, 3, "picked %d %s" % (picked, last), curses.A_UNDERLINE)
        s.hline(14, 1, curses.ACS_HLINE, 40)
        k = s.getch()
        if k == curses.KEY_DOWN: picked += 1
        else: last = "key " + chr(k)
import locale; locale.setlocale(locale.LC_ALL, "C.UTF-8")
curses.wrapper(main)
"#;

#[tokio::test]
async fn two_viewers_share_one_size_and_the_other_can_take_it() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let terminal = open(&sandbox, &["sh"], 80, 24).await?;
    let mut first = Viewer::attach(&sandbox, terminal, "?cols=70&rows=20").await?;
    assert!(first.owner);
    first.type_in("stty size; PS1='$ '\n").await?;
    first.until_text("20 70").await?;
    let mut second = Viewer::attach(&sandbox, terminal, "?cols=50&rows=10").await?;
    assert!(!second.owner && second.screen.size().cols == 70);
    let mut reader = Viewer::attach(&sandbox, terminal, "?mode=read&cols=30&rows=5").await?;
    reader.type_in("echo never\n").await?;
    reader
        .send(&TerminalCommand::Take { cols: 30, rows: 5 })
        .await?;
    second
        .send(&TerminalCommand::Resize { cols: 51, rows: 11 })
        .await?;
    let colours = "printf '\\033[1;31mrot\\033[0m \\033[48;5;19m漢字\\033[m \\033[38;2;1;2;3m🎉 größe\\033[m \\a\\033]2;titel ü\\a\\n'; stty size\n";
    second.type_in(colours).await?;
    first.until_text("🎉 größe").await?;
    first.until(|v| v.bells == 1).await?;
    assert!(first.screen.rows_text().join("\n").matches("20 70").count() >= 1);
    second
        .send(&TerminalCommand::Take { cols: 52, rows: 12 })
        .await?;
    second
        .until(|v| v.owner && v.screen.size().cols == 52)
        .await?;
    first
        .until(|v| !v.owner && v.screen.size().rows == 12)
        .await?;
    first.type_in("stty size; echo ready\n").await?;
    for viewer in [&mut first, &mut second, &mut reader] {
        viewer.until_text("12 52\nready\n$").await?;
        assert_eq!(viewer.screen.osc().title.as_deref(), Some("titel ü"));
    }
    settle(&mut first, &mut second).await?;
    settle(&mut first, &mut reader).await?;
    let all = sandbox
        .client
        .terminal_screen(&sandbox.id, terminal, 1000)
        .await?;
    assert_eq!(all.rows, first.screen.rows_text());
    assert!(!all.scrollback.concat().contains("never"), "{all:?}");
    // The one who has the size leaves: the other gets it back.
    drop(second);
    first
        .until(|v| v.owner && v.screen.size().cols == 70)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_killed_daemon_loses_and_doubles_no_byte_of_a_terminal() -> anyhow::Result<()> {
    if !has_tools("a_killed_daemon_loses_no_byte", &["python3"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let program = "
import os, sys, time
for n in range(6000):
    if n % 1500 == 0:
        sys.stdout.flush()
        while not os.path.exists('/tmp/go%d' % (n // 1500)): time.sleep(0.01)
    sys.stdout.write('\\x1b[3%dm%06d größe 漢字 🎉 %s\\x1b[m\\r\\n' % (n % 8, n, 'x' * (n % 90)))
    if n % 40 == 0: sys.stdout.flush(); time.sleep(0.02)
sys.stdout.flush()
input()
";
    let terminal = open(&sandbox, &["/usr/bin/python3", "-c", program], 72, 21).await?;
    // A quarter at a time, so that there is always something to come when the daemon is killed.
    for quarter in 0..4 {
        let mut viewer = Viewer::attach(&sandbox, terminal, "").await?;
        let from = viewer.received;
        sandbox.out(&format!("touch /tmp/go{quarter}")).await?;
        viewer.until(|v| v.received > from + 40_000).await?;
        world.kill9()?;
        viewer.rest().await?;
        world.start_daemon().await?;
    }
    let mut viewer = Viewer::attach(&sandbox, terminal, "?scrollback=10000").await?;
    viewer.until_text("005999").await?;
    // What a screen shows that had it all in one piece.
    let size = handler_terminal::Size { cols: 72, rows: 21 };
    let mut whole = handler_terminal::Screen::new(size, handler_terminal::Limits::default());
    for n in 0..6000 {
        let line = format!(
            "\x1b[3{}m{n:06} größe 漢字 🎉 {}\x1b[m\r\n",
            n % 8,
            "x".repeat(n % 90)
        );
        whole.feed(line.as_bytes());
    }
    viewer.until(|v| look(&v.screen) == look(&whole)).await?;
    let wanted = whole.text(10_000);
    let kept = eventually("all lines in order", LONG, || async {
        let path = format!(
            "/v1/sandboxes/{}/terminals/{terminal}/screen?scrollback=10000",
            sandbox.id
        );
        let got = sandbox
            .client
            .call_raw(http::Method::GET, &path, None::<&()>)
            .await
            .ok()?;
        Some(show(&got))
    })
    .await?;
    assert!(kept.lines().count() > 1000, "{}", kept.lines().count());
    for (got, wanted) in kept.lines().rev().zip(wanted.lines().rev()) {
        assert_eq!(got, wanted);
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_lets_go_comes_back_lists_looks_and_closes() -> anyhow::Result<()> {
    if !has_tools("the_command_line_lets_go", &["setsid"]) {
        return Ok(());
    }
    let mut world = world().await?;
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "box"])
        .await?;
    let mut screen = world.on_tty(&["shell", "box", "--name", "mine"], (80, 24))?;
    screen.type_in("echo \"is $((40+2))\"\r")?;
    screen.until("is 42").await?;
    screen.type_in("\u{1d}d")?;
    assert_eq!(screen.ended().await?, 0, "{:?}", screen.text());
    screen.until("sandbox attach box 1").await?;
    let listed = world.cli_ok(&["sandbox", "terminals", "box"]).await?;
    assert!(
        listed.contains("mine") && listed.contains("running"),
        "{listed}"
    );
    let mut again = world.on_tty(&["sandbox", "attach", "box"], (90, 20))?;
    again.until("is 42").await?;
    again.type_in("stty size; echo \"also $((50+3))\"\r")?;
    again.until("20 90").await?;
    again.until("also 53").await?;
    let looked = world.cli_ok(&["sandbox", "screen", "box", "1"]).await?;
    assert!(
        looked.contains("is 42") && looked.contains("also 53"),
        "{looked}"
    );
    world.kill9()?;
    again.type_in("echo \"typed $((60+4))\"\r")?;
    world.start_daemon().await?;
    again.until("typed 64").await?;
    again.type_in("exit 3\r")?;
    assert_eq!(again.ended().await?, 3, "{:?}", again.text());
    let listed = world.cli_ok(&["sandbox", "terminals", "box"]).await?;
    assert!(listed.contains("exited 3"), "{listed}");
    world.cli_ok(&["sandbox", "close", "box", "1"]).await?;
    let listed = world
        .cli_ok(&["--json", "sandbox", "terminals", "box"])
        .await?;
    assert_eq!(listed.trim(), "[]");
    Ok(())
}

#[tokio::test]
async fn tmux_sessions_are_listed_and_attached_to() -> anyhow::Result<()> {
    if !has_tools("tmux_sessions_are_listed", &["tmux"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let none = sandbox.client.tmux_sessions(&sandbox.id).await?;
    assert!(none.installed && none.sessions.is_empty(), "{none:?}");
    sandbox
        .sh("tmux new-session -d -s work 'echo inside tmux; exec sh'")
        .await?;
    let some = sandbox.client.tmux_sessions(&sandbox.id).await?;
    assert_eq!(
        (some.sessions.len(), some.sessions[0].name.as_str()),
        (1, "work")
    );
    let request = CreateTerminal {
        tmux: Some("work".into()),
        ..Default::default()
    };
    let made = sandbox
        .client
        .create_terminal(&sandbox.id, &request)
        .await?;
    let mut viewer = Viewer::attach(&sandbox, made.terminal, "?cols=80&rows=24").await?;
    viewer.until_text("inside tmux").await?;
    let some = sandbox.client.tmux_sessions(&sandbox.id).await?;
    assert_eq!(some.sessions[0].attached, 1);
    // The terminal goes, the session stays.
    sandbox
        .client
        .close_terminal(&sandbox.id, made.terminal)
        .await?;
    let some = sandbox.client.tmux_sessions(&sandbox.id).await?;
    assert_eq!(some.sessions.len(), 1);
    Ok(())
}
