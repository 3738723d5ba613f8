//! Commands: what they say, how they end, what they are given.

use crate::client::{Sandbox, Seen, shell};
use handler_types::guest::{GuestErrorCode, Message, Op, ProcessSpec, Reply, Stream, TtySize};
use std::collections::BTreeMap;

#[test]
fn a_command_says_what_it_says_on_both_streams() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run("echo out; echo err >&2; exit 7");
    assert_eq!(told.stdout, b"out\n");
    assert_eq!(told.stderr, b"err\n");
    assert_eq!(told.exit.code, 7);
    assert_eq!(told.exit.signal, None);
    assert!(!told.exit.timed_out);
}

#[test]
fn a_signal_is_told_as_such() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run("kill -TERM $$");
    assert_eq!((told.exit.code, told.exit.signal), (143, Some(15)));
    let process = host.shell("echo ready; exec sleep 1000");
    host.output_with(process, "ready");
    for wrong in [0, 32, -1] {
        let error = host
            .ask(Op::Signal {
                process,
                signal: wrong,
                tree: false,
            })
            .unwrap_err();
        assert_eq!(error.code, GuestErrorCode::Invalid);
    }
    let signal = |signal| Op::Signal {
        process,
        signal,
        tree: false,
    };
    assert_eq!(host.ask(signal(9)), Ok(Reply::Done));
    let told = host.drain(process);
    assert_eq!((told.exit.code, told.exit.signal), (137, Some(9)));
    let error = host.ask(signal(9)).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::NotFound);
}

#[test]
fn a_child_starts_with_fresh_signals_and_no_foreign_descriptors() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let told = host.run("grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd");
    let text = String::from_utf8(told.stdout).unwrap();
    let zero = "0000000000000000";
    assert!(text.contains(&format!("SigBlk:\t{zero}")), "{text}");
    assert!(text.contains(&format!("SigIgn:\t{zero}")), "{text}");
    // `ls` itself has 3 open for the folder.
    assert!(text.ends_with("0\n1\n2\n3\n"), "{text}");
}

#[test]
fn environment_and_folder_are_those_of_the_sandbox_unless_asked() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let folder = sandbox.folder.path().canonicalize().unwrap();
    let mut spec = shell("pwd; echo \"$A|$EMPTY|${EMPTY-unset}|$HOME\"");
    spec.env = BTreeMap::from([
        ("A".to_owned(), "b c".to_owned()),
        ("EMPTY".to_owned(), String::new()),
        ("HOME".to_owned(), "/h".to_owned()),
    ]);
    let process = host.start(spec.clone()).unwrap().process;
    host.attach(process, 0);
    let told = host.drain(process);
    let expected = format!("{}\nb c|||/h\n", folder.display());
    assert_eq!(String::from_utf8(told.stdout).unwrap(), expected);
    spec.cwd = Some("/".to_owned());
    let process = host.start(spec).unwrap().process;
    host.attach(process, 0);
    assert!(host.drain(process).stdout.starts_with(b"/\n"));
}

#[test]
fn what_cannot_run_is_refused_with_a_reason() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    std::fs::write(sandbox.path("plain"), "text").unwrap();
    let spec = |argv: &[&str]| ProcessSpec {
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        ..ProcessSpec::default()
    };
    let mut nowhere = spec(&["true"]);
    nowhere.cwd = Some("/no/such/folder".to_owned());
    let mut bad_name = spec(&["true"]);
    bad_name.env.insert("A=B".to_owned(), String::new());
    let mut no_time = spec(&["true"]);
    no_time.timeout_ms = Some(0);
    let mut flat = spec(&["true"]);
    flat.tty = Some(TtySize { cols: 0, rows: 1 });
    for (spec, code) in [
        (spec(&[]), GuestErrorCode::Invalid),
        (spec(&["no-such-program"]), GuestErrorCode::NotFound),
        (spec(&["/no/such/program"]), GuestErrorCode::NotFound),
        (spec(&[&sandbox.path("plain")]), GuestErrorCode::Denied),
        (spec(&["/"]), GuestErrorCode::Denied),
        (spec(&["true", "a\0b"]), GuestErrorCode::Invalid),
        (nowhere, GuestErrorCode::NotFound),
        (bad_name, GuestErrorCode::Invalid),
        (no_time, GuestErrorCode::Invalid),
        (flat, GuestErrorCode::Invalid),
    ] {
        let error = host.start(spec.clone()).unwrap_err();
        assert_eq!(error.code, code, "{spec:?}: {error}");
    }
    let error = host.start(spec(&["no-such-program"])).unwrap_err();
    assert!(error.message.contains("no-such-program"), "{error}");
    // None of them is remembered.
    match host.ask(Op::Processes).unwrap() {
        Reply::Processes { processes, .. } => assert!(processes.is_empty(), "{processes:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_the_shell() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let script = sandbox.path("script");
    std::fs::write(&script, "echo \"$1\"\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let spec = ProcessSpec {
        argv: vec![script, "said".to_owned()],
        ..ProcessSpec::default()
    };
    let process = host.start(spec).unwrap().process;
    host.attach(process, 0);
    assert_eq!(host.drain(process).stdout, b"said\n");
}

#[test]
fn one_key_starts_once() {
    let sandbox = Sandbox::new();
    let (mut one, mut other) = (sandbox.connect(), sandbox.connect());
    let mut spec = shell("echo once >> log; exec sleep 1000");
    spec.key = "k".to_owned();
    // Sent together, so that the second comes while the first may still be starting.
    let ids = [(); 3].map(|()| one.send(Op::Start { spec: spec.clone() }));
    let started = ids.map(|id| one.answer(id).unwrap());
    assert_eq!(started[0], started[1]);
    let again = other.start(spec.clone()).unwrap();
    match &started[2] {
        Reply::Started { process } => assert_eq!(process.process, again.process),
        other => panic!("{other:?}"),
    }
    let process = again.process;
    let error = one.ask(Op::Forget { process }).unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
    one.ask(Op::Signal {
        process,
        signal: 9,
        tree: true,
    })
    .unwrap();
    one.exit(process);
    assert!(one.info(process).exit.is_some());
    one.ask(Op::Forget { process }).unwrap();
    let fresh = one.start(spec).unwrap();
    assert_ne!(fresh.process, process);
}

#[test]
fn without_input_a_command_reads_an_empty_file() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host.shell("cat; echo end");
    host.input(process, 0, b"for nobody");
    let told = host.drain(process);
    assert_eq!(told.stdout, b"end\n");
    let refused = host.find(|seen| match seen {
        Seen::Message(Message::InputRefused { error, .. }) => Some(error.code),
        _ => None,
    });
    assert_eq!(refused, GuestErrorCode::Invalid);
}

#[test]
fn input_sent_again_is_not_doubled_and_gaps_are_refused() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell("cat");
    spec.stdin = true;
    let process = host.start(spec).unwrap().process;
    host.attach(process, 0);
    host.input(process, 0, b"hello ");
    host.output_with(process, "hello ");
    // A host that lost its link sends from what it knows.
    let mut host = sandbox.connect();
    host.attach(process, 6);
    host.input(process, 3, b"lo wor");
    host.input(process, 20, b"too far");
    let refused = host.find(|seen| match seen {
        Seen::Message(Message::InputRefused { error, .. }) => Some(error.code),
        _ => None,
    });
    assert_eq!(refused, GuestErrorCode::Invalid);
    host.input(process, 6, b"world\n");
    host.ask(Op::CloseStdin { process, at: 12 }).unwrap();
    let told = host.drain(process);
    assert_eq!(told.stdout, b"world\n");
    assert_eq!(told.exit.code, 0);
    assert_eq!(host.info(process).received, 12);
}

#[test]
fn a_terminal_has_its_size_and_learns_of_a_new_one() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec =
        shell("trap 'stty size; exit 3' WINCH; tty -s && stty size; while :; do sleep 0.05; done");
    spec.tty = Some(TtySize { cols: 91, rows: 17 });
    let info = host.start(spec).unwrap();
    let process = info.process;
    assert_eq!(info.tty, Some(TtySize { cols: 91, rows: 17 }));
    host.attach(process, 0);
    let (_, stream, _) = host.piece(process).unwrap();
    assert_eq!(stream, Stream::Pty);
    let resize = |cols, rows| Op::Resize {
        process,
        cols,
        rows,
    };
    assert_eq!(
        host.ask(resize(0, 5)).unwrap_err().code,
        GuestErrorCode::Invalid
    );
    host.ask(resize(132, 50)).unwrap();
    let text = host.output_with(process, "50 132");
    assert!(!text.contains("17 91"));
    let told = host.drain(process);
    assert_eq!(told.exit.code, 3);
    assert_eq!(
        host.info(process).tty,
        Some(TtySize {
            cols: 132,
            rows: 50
        })
    );
    let plain = host.shell("sleep 1000");
    let error = host
        .ask(Op::Resize {
            process: plain,
            cols: 1,
            rows: 1,
        })
        .unwrap_err();
    assert_eq!(error.code, GuestErrorCode::Invalid);
}

#[test]
fn a_terminal_takes_input_and_its_end() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell("stty -echo; echo ready; cat; echo end");
    spec.tty = Some(TtySize { cols: 80, rows: 24 });
    let process = host.start(spec).unwrap().process;
    host.attach(process, 0);
    host.output_with(process, "ready");
    host.input(process, 0, b"line\n");
    host.output_with(process, "line");
    host.ask(Op::CloseStdin { process, at: 5 }).unwrap();
    host.output_with(process, "end");
    assert_eq!(host.drain(process).exit.code, 0);
}

#[test]
fn statistics_count_what_runs() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let stats = |host: &mut crate::client::Host| match host.ask(Op::Stats).unwrap() {
        Reply::Stats { stats } => stats,
        other => panic!("{other:?}"),
    };
    let before = stats(&mut host);
    assert_eq!(before.processes, 1);
    assert!(before.memory_bytes > 0);
    let process =
        host.shell("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; exec sleep 1000");
    host.output_with(process, "done");
    let during = stats(&mut host);
    // The supervisor counts as well.
    assert_eq!(during.processes, 3);
    assert!(during.cpu_ms > before.cpu_ms);
    assert!(during.memory_bytes > before.memory_bytes);
}

#[test]
fn spent_processes_are_forgotten_oldest_first_and_those_with_output_kept() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let kept = host.start(shell("echo unread")).unwrap().process;
    let quiet = ProcessSpec {
        argv: vec!["true".to_owned()],
        ..ProcessSpec::default()
    };
    let mut last = kept;
    // In groups, as the machine may bear few processes at once.
    for _ in 0..55 {
        let ids = [(); 20].map(|()| {
            host.send(Op::Start {
                spec: quiet.clone(),
            })
        });
        for id in ids {
            match host.answer(id).unwrap() {
                Reply::Started { process } => last = process.process,
                other => panic!("{other:?}"),
            }
            host.exit(last);
        }
    }
    assert_eq!(last, kept + 1100);
    let id = host.send(Op::Processes);
    let mut known = Vec::new();
    loop {
        match host.answer(id).unwrap() {
            Reply::Processes { processes, more } => {
                known.extend(processes.into_iter().map(|info| info.process));
                if !more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(known.len() <= 1024 + 1 + 20, "{} known", known.len());
    assert!(known.len() >= 1024, "{} known", known.len());
    assert!(known.contains(&kept) && known.contains(&last));
    assert!(!known.contains(&(kept + 1)));
}
