//! What commands leave behind, and how all of it ends.

use crate::client::{Host, Sandbox, is_alive, shell, wait_for};
use handler_types::guest::{Op, Reply};
use std::time::{Duration, Instant};

/// A pid that a command wrote to a file.
fn pid_in(sandbox: &Sandbox, name: &str) -> i32 {
    let path = sandbox.path(name);
    wait_for("a pid is written", || {
        let text = std::fs::read_to_string(&path).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    })
}

/// Forks twice with sessions of their own, as daemons do, and lets the one in between end.
const DAEMON: &str = "setsid sh -c 'setsid sh -c \"echo \\$\\$ > daemon; trap : TERM HUP INT; while :; do sleep 0.1; done\" & exit' &";

fn daemon_command(then: &str) -> String {
    format!("{DAEMON} while [ ! -s daemon ]; do sleep 0.01; done; {then}")
}

#[test]
fn a_time_limit_ends_a_tree_that_detached_itself() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell(&daemon_command("trap '' TERM; while :; do sleep 0.1; done"));
    spec.timeout_ms = Some(700);
    let process = host.start(spec).unwrap().process;
    let daemon = pid_in(&sandbox, "daemon");
    let exit = host.exit(process);
    assert!(exit.timed_out);
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    wait_for("the daemon is dead", || (!is_alive(daemon)).then_some(()));
}

#[test]
fn a_tree_that_forks_without_end_is_killed() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    // Each one starts the next and ends: no process lives for long, but there is always one.
    std::fs::write(
        sandbox.path("hop"),
        "#!/bin/sh\necho x >> hops\nsetsid \"$0\" &\nexit 0\n",
    )
    .unwrap();
    let process = host.shell("chmod +x hop; ./hop; sleep 1000");
    let hops = sandbox.path("hops");
    let length = || std::fs::metadata(&hops).map_or(0, |found| found.len());
    wait_for("it hops", || (length() > 40).then_some(()));
    host.ask(Op::Signal {
        process,
        signal: 9,
        tree: true,
    })
    .unwrap();
    assert_eq!(host.exit(process).signal, Some(9));
    wait_for("it stops", || {
        let before = length();
        std::thread::sleep(Duration::from_millis(300));
        (length() == before).then_some(())
    });
}

#[test]
fn a_tree_gets_other_signals_one_by_one() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host.shell(
        "sh -c 'trap \"echo inner; exit\" USR1; echo a; while :; do sleep 0.05; done' & \
         trap 'echo outer; wait; exit 4' USR1; echo b; while :; do sleep 0.05; done",
    );
    let mut text = host.output_with(process, "a\n");
    if !text.contains("b\n") {
        text += &host.output_with(process, "b\n");
    }
    host.ask(Op::Signal {
        process,
        signal: 10,
        tree: true,
    })
    .unwrap();
    let told = host.drain(process);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("inner") && text.contains("outer"), "{text}");
    assert_eq!(told.exit.code, 4);
}

#[test]
fn a_child_in_the_background_does_not_hold_the_command_and_lives_on() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let begun = Instant::now();
    let told = host.run("sleep 1000 & echo $! > pid; echo hi");
    assert!(
        begun.elapsed() < Duration::from_secs(500),
        "it waited for the child"
    );
    assert_eq!(told.stdout, b"hi\n");
    let pid = pid_in(&sandbox, "pid");
    assert!(is_alive(pid));
}

#[test]
fn a_child_that_never_stops_talking_does_not_hold_the_command_nor_die_of_it() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run(
        "sh -c 'while :; do echo noise; echo x >> alive; sleep 0.02; done' & echo $! > pid; echo hi",
    );
    assert!(told.stdout.windows(2).any(|part| part == b"hi"));
    let alive = sandbox.path("alive");
    let length = || std::fs::metadata(&alive).unwrap().len();
    let before = length();
    wait_for("it goes on", || (length() > before + 20).then_some(()));
    assert!(is_alive(pid_in(&sandbox, "pid")));
}

#[test]
fn what_was_written_before_the_end_is_read_in_any_case() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    // The pipe is full when the command ends, and a child keeps it open.
    let told = host.run("sleep 1000 & head -c 60000 /dev/zero; exit 0");
    assert_eq!(told.stdout.len(), 60_000);
}

#[test]
fn a_killed_supervisor_takes_its_tree_along() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host
        .start(shell(&daemon_command("echo $PPID > parent; sleep 1000")))
        .unwrap()
        .process;
    let daemon = pid_in(&sandbox, "daemon");
    let supervisor = pid_in(&sandbox, "parent");
    let main = host.info(process).pid;
    let pid = rustix::process::Pid::from_raw(supervisor).unwrap();
    // The agent may do so: it has the same rights.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let exit = host.exit(process);
    assert_eq!((exit.code, exit.timed_out), (137, false));
    for pid in [daemon, main] {
        wait_for("it is dead", || (!is_alive(pid)).then_some(()));
    }
    // The guest itself is well.
    assert_eq!(host.run("echo fine").stdout, b"fine\n");
}

#[test]
fn a_stopped_supervisor_is_woken() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run("kill -STOP $PPID; echo done");
    assert_eq!(told.stdout, b"done\n");
    assert_eq!(told.exit.code, 0);
}

#[test]
fn ended_processes_leave_nothing_behind() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let count = |host: &mut Host| match host.ask(Op::Stats).unwrap() {
        Reply::Stats { stats } => stats.processes,
        other => panic!("{other:?}"),
    };
    let open = || {
        std::fs::read_dir(format!("/proc/{}/fd", sandbox.pid()))
            .unwrap()
            .count()
    };
    host.run("true");
    wait_for("all are reaped", || (count(&mut host) == 1).then_some(()));
    let before = open();
    for _ in 0..20 {
        host.run("true; (exit 3) & wait");
    }
    wait_for("all are reaped", || (count(&mut host) == 1).then_some(()));
    wait_for("all are closed", || (open() <= before).then_some(()));
}

#[test]
fn as_pid_1_it_reaps_orphans_and_obeys_no_signal_from_inside() {
    let Some(mut sandbox) = Sandbox::as_init("as_pid_1_it_reaps_orphans") else {
        return;
    };
    let mut host = sandbox.connect();
    let told = host.run("ps -o pid= -o comm= -p 1; kill -TERM 1; kill -TERM -1; echo $$");
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("handler-guest"), "{text}");
    let process = host
        .start(shell(&daemon_command("echo $PPID > parent; sleep 1000")))
        .unwrap()
        .process;
    pid_in(&sandbox, "parent");
    // Pids inside are not those outside.
    host.run("kill -KILL $(cat parent)");
    assert_eq!(host.exit(process).signal, Some(9));
    wait_for("nothing is left, not even dead ones", || {
        let told = host.run("ls -d /proc/[0-9]* | wc -l");
        // The guest, a supervisor, the shell, `ls` and `wc`, the last two perhaps gone.
        let count: u32 = String::from_utf8(told.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        (count <= 5).then_some(())
    });
    match host.ask(Op::Stats).unwrap() {
        Reply::Stats { stats } => assert!(stats.processes >= 1),
        other => panic!("{other:?}"),
    }
    // From outside the same signal counts.
    let unshare = sandbox.pid();
    let list = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    let init = rustix::process::Pid::from_raw(list.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::TERM).unwrap();
    assert_eq!(sandbox.wait_end(), Some(0));
}

#[test]
fn shutdown_asks_first_then_kills_and_ends_the_guest() {
    let mut sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let polite = host
        .start(shell(
            "trap 'echo bye > bye; exit 0' TERM; echo $$ > polite; while :; do sleep 0.05; done",
        ))
        .unwrap();
    host.start(shell(&daemon_command("sleep 1000"))).unwrap();
    let (daemon, polite_pid) = (pid_in(&sandbox, "daemon"), pid_in(&sandbox, "polite"));
    assert_eq!(polite.pid, polite_pid);
    assert_eq!(host.ask(Op::Shutdown), Ok(Reply::Done));
    assert_eq!(host.exit(polite.process).code, 0);
    assert_eq!(sandbox.wait_end(), Some(0));
    assert!(std::fs::exists(sandbox.path("bye")).unwrap());
    for pid in [daemon, polite_pid] {
        wait_for("it is dead", || (!is_alive(pid)).then_some(()));
    }
}
