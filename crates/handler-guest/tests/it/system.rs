//! The sandbox as a whole: users, shells, processes, ports, figures, permission bits of trees.

use crate::client::{Sandbox, shell, skip, wait_for};
use handler_types::guest::{GuestErrorCode, Op, ProcessSpec, Reply, SystemProcess};
use std::os::unix::fs::PermissionsExt as _;

fn line(text: &str) -> ProcessSpec {
    ProcessSpec {
        shell: Some(text.to_owned()),
        ..ProcessSpec::default()
    }
}

#[test]
fn a_command_line_runs_in_a_login_shell_and_not_beside_a_program() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let process = host
        .start(line("echo $((1 + 2)) | tr 3 x; exit 4"))
        .expect("a shell is here");
    assert_eq!(process.argv[1], "-lc");
    host.attach(process.process, 0);
    let told = host.drain(process.process);
    assert_eq!((told.stdout.as_slice(), told.exit.code), (&b"x\n"[..], 4));

    let mut both = shell("true");
    both.shell = Some("true".to_owned());
    for spec in [both, line("")] {
        let error = host.start(spec).expect_err("one of them");
        assert_eq!(error.code, GuestErrorCode::Invalid);
    }
}

#[test]
fn a_command_runs_as_another_user_where_the_guest_may_change_users() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell("id -u; id -g; echo $HOME; echo $USER; echo $LOGNAME");
    spec.user = Some("nobody".to_owned());
    if !rustix::process::geteuid().is_root() {
        let error = host.start(spec).expect_err("no right to change users");
        assert_eq!(error.code, GuestErrorCode::Denied);
        skip("a_command_runs_as_another_user", "not root");
        return;
    }
    spec.cwd = Some("/".to_owned());
    let process = host.start(spec.clone()).expect("root may").process;
    host.attach(process, 0);
    let told = String::from_utf8(host.drain(process).stdout).expect("text");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "65534");
    assert_eq!(lines[3..], ["nobody", "nobody"]);

    // By number, with a group; the user has no right to anything of root's.
    spec.user = Some("4242:4243".to_owned());
    spec.argv[2] = "id -u; id -g; id -G; echo $HOME; cat /proc/1/environ".to_owned();
    let process = host.start(spec.clone()).expect("any number").process;
    host.attach(process, 0);
    let told = host.drain(process);
    assert_eq!(told.stdout, b"4242\n4243\n4243\n/\n");
    assert_ne!(told.exit.code, 0);

    spec.user = Some("no-such-user".to_owned());
    let error = host.start(spec).expect_err("nobody of that name");
    assert_eq!(error.code, GuestErrorCode::NotFound);
}

fn table(host: &mut crate::client::Host) -> Vec<SystemProcess> {
    match host.ask(Op::Table).expect("listed") {
        Reply::Table { processes, .. } => processes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_process_is_listed_with_its_parent_group_and_terminal() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let mut spec = shell("sleep 1000 & wait");
    spec.tty = Some(handler_types::guest::TtySize { cols: 80, rows: 24 });
    let started = host.start(spec).expect("runs");
    let sleeping = wait_for("the background process", || {
        table(&mut host)
            .into_iter()
            .find(|found| found.comm == "sleep")
    });
    assert_eq!(sleeping.argv, ["sleep", "1000"]);
    assert_eq!(sleeping.ppid, started.pid);
    assert_eq!(sleeping.session, started.pid);
    assert!(sleeping.tty.is_some_and(|tty| tty.starts_with("/dev/pts/")));
    assert!((sleeping.started_ms - started.started_ms).abs() < 60_000);
    let (process, tree) = (started.process, true);
    host.ask(Op::Signal {
        process,
        signal: 9,
        tree,
    })
    .expect("killed");
}

#[test]
fn figures_tell_of_disk_and_processors() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let Reply::Stats { stats } = host.ask(Op::Stats).expect("told") else {
        panic!("figures");
    };
    assert!(stats.disk_total_bytes > stats.disk_used_bytes && stats.disk_used_bytes > 0);
    assert!(stats.cpus > 0.0 && stats.load >= 0.0);
}

#[test]
fn listening_ports_are_told_with_who_listens() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let Reply::Ports { ports } = host.ask(Op::Ports).expect("listed") else {
        panic!("ports");
    };
    let found = ports.iter().find(|found| found.port == port).expect("ours");
    assert_eq!(found.address, "127.0.0.1");
    // The test is no process of the sandbox.
    assert_eq!(found.pid, None);
    let python = "import socket,sys,time\ns=socket.socket(socket.AF_INET6)\ns.bind(('::1',0))\ns.listen()\n\
                  print(s.getsockname()[1],flush=True)\ntime.sleep(1000)";
    let process = match host.start(ProcessSpec {
        argv: ["python3", "-c", python].map(str::to_owned).to_vec(),
        ..ProcessSpec::default()
    }) {
        Ok(process) => process,
        Err(_) => return skip("listening_ports_are_told_with_who_listens", "no python3"),
    };
    host.attach(process.process, 0);
    let port: u16 = host
        .output_with(process.process, "\n")
        .trim()
        .parse()
        .expect("a port");
    let Reply::Ports { ports } = host.ask(Op::Ports).expect("listed") else {
        panic!("ports");
    };
    let found = ports
        .iter()
        .find(|found| found.port == port)
        .expect("python's");
    assert_eq!(
        (found.address.as_str(), found.pid),
        ("::1", Some(process.pid))
    );
    assert!(
        found
            .program
            .as_deref()
            .is_some_and(|name| name.starts_with("python3"))
    );
}

#[test]
fn bits_of_a_tree_are_set_and_links_lead_nowhere() {
    let sandbox = Sandbox::new();
    let mut host = sandbox.connect();
    std::fs::create_dir_all(sandbox.path("tree/sub")).expect("made");
    std::fs::write(sandbox.path("tree/sub/file"), "x").expect("made");
    std::fs::write(sandbox.path("outside"), "x").expect("made");
    std::os::unix::fs::symlink(sandbox.path("outside"), sandbox.path("tree/link")).expect("made");
    std::os::unix::fs::symlink("nowhere", sandbox.path("tree/dangling")).expect("made");
    let bits = |name: &str| {
        let meta = std::fs::metadata(sandbox.path(name)).expect("there");
        meta.permissions().mode() & 0o7777
    };
    let before = bits("outside");
    let mut ask = |mode, recursive, name: &str| {
        let path = sandbox.path(name);
        host.ask(Op::Chmod {
            path,
            mode,
            recursive,
        })
    };
    ask(0o700, true, "tree").expect("all of it");
    assert_eq!(
        (bits("tree"), bits("tree/sub"), bits("tree/sub/file")),
        (0o700, 0o700, 0o700)
    );
    assert_eq!(bits("outside"), before);
    ask(0o640, false, "tree/sub/file").expect("one");
    ask(0o600, true, "tree/sub/file").expect("a file");
    assert_eq!(bits("tree/sub/file"), 0o600);
    assert_eq!(
        ask(0o600, true, "no").expect_err("none").code,
        GuestErrorCode::NotFound
    );
    assert_eq!(
        ask(0o10000, false, "tree").expect_err("bits").code,
        GuestErrorCode::Invalid
    );
}
