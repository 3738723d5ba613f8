//! What a program in a sandbox can see and do, and what it cannot.

use crate::world::World;
use handler_types::sandbox::{FileSpec, MountSpec};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

#[tokio::test]
async fn the_project_is_writable_at_its_own_path_and_nothing_else_of_the_host_is_there() {
    let world = World::new();
    let secret = world.dir("elsewhere").join("secret");
    std::fs::write(&secret, "x").expect("writes");
    let sandbox = world.sandbox().await;
    let scope = sandbox.plan.spec.scope.clone().expect("scope");
    let done = sandbox
        .sh("pwd; echo hi > f && cat f; id -u; echo $HOME; touch ~/x && ls ~")
        .await;
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(
        done.out,
        format!("{scope}\nhi\n{uid}\n/home/agent\nx\n"),
        "{done:?}"
    );
    assert_eq!(
        std::fs::read_to_string(format!("{scope}/f")).expect("reads"),
        "hi\n"
    );
    let hidden = [
        secret.to_str().expect("utf-8"),
        "/root",
        "/etc/shadow",
        "/etc/ssh",
        "/boot",
        "/var/lib",
    ];
    for path in hidden {
        let done = sandbox.sh(&format!("ls -d '{path}'")).await;
        assert_ne!(done.code, 0, "{path} is visible");
    }
    let listed = sandbox.sh("ls -A /tmp /run /run/handler").await.out;
    assert!(!listed.contains("sock"), "{listed}");
    sandbox.destroy().await;
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn read_only_places_stay_read_only() {
    let world = World::new();
    let shown = world.dir("shown");
    std::fs::write(shown.join("f"), "x").expect("writes");
    let source = shown.to_str().expect("utf-8").to_owned();
    let plan = world.plan(|spec| {
        spec.mounts.push(MountSpec {
            source: source.clone(),
            target: "/data".into(),
            read_only: true,
        });
        spec.files.push(FileSpec {
            target: "/home/agent/.config/fixed".into(),
            content: "fixed".into(),
            mode: 0o644,
            writable: false,
        });
        spec.files.push(FileSpec {
            target: "/home/agent/.config/seed".into(),
            content: "seed".into(),
            mode: 0o600,
            writable: true,
        });
    });
    let sandbox = world.start(plan).await.expect("starts");
    assert_eq!(
        sandbox
            .sh("cat /data/f ~/.config/fixed ~/.config/seed")
            .await
            .out,
        "xfixedseed"
    );
    for script in [
        "echo y > /data/f",
        "chmod 777 /data/f",
        "rm /data/f",
        "mount -o remount,rw /data",
        "mount -o bind,remount,rw /data",
        "umount /data",
        "echo y > ~/.config/fixed",
        "rm ~/.config/fixed",
        "touch /usr/x",
        "touch /x",
        "touch /etc/x",
        "echo x >> /etc/passwd",
        "touch /dev/x",
        "chmod 600 /dev/null",
        "mknod /tmp/disk b 8 0",
    ] {
        let done = sandbox.sh(script).await;
        assert_ne!(done.code, 0, "{script} worked");
    }
    assert_eq!(
        sandbox
            .sh("echo new > ~/.config/seed && cat ~/.config/seed")
            .await
            .out,
        "new\n"
    );
    assert_eq!(
        std::fs::read_to_string(shown.join("f")).expect("reads"),
        "x"
    );
    sandbox.destroy().await;
}

#[tokio::test]
async fn other_processes_are_neither_seen_nor_looked_into() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let seen = sandbox.sh("cd /proc && ls -d [0-9]* | wc -l").await.out;
    assert!(seen.trim().parse::<u32>().expect("a number") < 6, "{seen}");
    for script in [
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "readlink /proc/1/exe",
        "readlink /proc/1/fd/3",
        "ls /proc/1/root/",
    ] {
        let done = sandbox.sh(script).await;
        assert_ne!(done.code, 0, "{script}: {done:?}");
    }
    let done = sandbox.sh("kill -9 1; sleep 0.05; echo alive").await;
    assert_eq!(done.out, "alive\n");
    sandbox.destroy().await;
}

#[tokio::test]
async fn kernel_settings_cannot_be_written() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
    ] {
        let done = sandbox
            .sh(&format!("cat '{path}' > /tmp/v; cat /tmp/v > '{path}'"))
            .await;
        assert_ne!(done.code, 0, "{path} was written");
    }
    assert_eq!(
        sandbox
            .sh("cat /proc/keys /proc/timer_list 2>/dev/null | wc -c")
            .await
            .out
            .trim(),
        "0"
    );
    let done = sandbox
        .sh("echo 0 > /sys/devices/system/cpu/cpu1/online")
        .await;
    assert_ne!(done.code, 0);
    sandbox.destroy().await;
}

#[tokio::test]
async fn host_sockets_and_host_network_are_out_of_reach() {
    let world = World::new();
    let path = world.dir("host").join("h.sock");
    let _pathname = UnixListener::bind(&path).expect("binds");
    let name = format!("handler-test-{}", handler_base::random::hex(8));
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("binds");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = tcp.local_addr().expect("address").port();
    let sandbox = world.sandbox().await;
    let script = format!(
        r#"python3 - <<'END'
import socket
def tried(name, f):
    try: f(); print(name, "REACHED")
    except OSError as e: print(name, "refused")
def unix(a): s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(a)
def tcp(h, p): socket.create_connection((h, p), 2)
tried("pathname", lambda: unix("{path}"))
tried("abstract", lambda: unix("\0{name}"))
tried("loopback", lambda: tcp("127.0.0.1", {port}))
tried("metadata", lambda: tcp("169.254.169.254", 80))
tried("ipv4", lambda: tcp("192.0.2.1", 80))
tried("ipv6", lambda: tcp("2001:db8::1", 80))
tried("name", lambda: socket.getaddrinfo("example.com", 80))
for n, f in (("alg", 38), ("packet", 17), ("vsock", 40), ("netlink-audit", 16)):
    tried(n, lambda: socket.socket(f, socket.SOCK_RAW if f != 38 else 5, 9 if f == 16 else 0))
print(sorted(n for _, n in socket.if_nameindex()))
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); tcp("127.0.0.1", s.getsockname()[1]); print("own loopback")
END"#,
        path = path.display()
    );
    let done = sandbox.sh(&script).await;
    assert!(!done.out.contains("REACHED"), "{done:?}");
    assert_eq!(done.out.matches("refused").count(), 11, "{done:?}");
    assert!(done.out.ends_with("['lo']\nown loopback\n"), "{done:?}");
    sandbox.destroy().await;
}

#[tokio::test]
async fn there_are_no_rights_and_none_can_be_had() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let status = sandbox
        .sh("cat /proc/self/status; ulimit -c; ulimit -Hc")
        .await
        .out;
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line} not in {status}");
    }
    assert!(status.ends_with("0\n0\n"), "{status}");
    for script in [
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs x /tmp",
        "chroot / true",
        "dmesg",
    ] {
        let done = sandbox.sh(script).await;
        assert_ne!(done.code, 0, "{script} worked");
    }
    assert!(std::fs::read_to_string("/proc/self/uid_map").is_ok());
    sandbox.destroy().await;
}

#[tokio::test]
async fn forbidden_calls_are_refused_each_in_its_way() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let script = r#"python3 - <<'END'
import ctypes, errno, fcntl, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    print(name, errno.errorcode.get(ctypes.get_errno(), "OK"))
x86 = platform.machine() == "x86_64"
call("clone3", 435, 0, 0)
call("future", 1000, 0)
call("io_uring", 425, 1, 0)
call("userns", 56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0)
call("keyctl", 250 if x86 else 219, 0, 0)
call("bpf", 321 if x86 else 280, 0, 0, 0)
call("perf", 298 if x86 else 241, 0, 0, -1, -1, 0)
call("userfaultfd", 323 if x86 else 282, 1)
call("setns", 308 if x86 else 268, 0, 0)
call("open_tree", 428, -100, 0, 0)
m, s = os.openpty()
for name, number in (("TIOCSTI", 0x5412), ("high TIOCSTI", 0x500005412), ("TIOCLINUX", 0x541C), ("TIOCSETD", 0x5423)):
    call(name, 16 if x86 else 29, s, number, ctypes.c_char_p(b"\0\0\0\0"))
END"#;
    let done = sandbox.sh(script).await;
    let expected = "clone3 ENOSYS\nfuture ENOSYS\nio_uring EPERM\nuserns EPERM\nkeyctl EPERM\nbpf EPERM\n\
        perf EPERM\nuserfaultfd EPERM\nsetns EPERM\nopen_tree EPERM\nTIOCSTI EPERM\nhigh TIOCSTI EPERM\n\
        TIOCLINUX EPERM\nTIOCSETD EPERM\n";
    assert_eq!(done.out, expected, "{done:?}");
    sandbox.destroy().await;
}

#[tokio::test]
async fn the_programs_agents_use_run() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    for (program, script, expected) in [
        ("bash", "bash -c 'echo ${BASH_VERSION:+ok}'", "ok"),
        (
            "python3",
            "python3 -c 'import ssl, threading, multiprocessing; t=threading.Thread(target=print, args=(\"ok\",)); t.start(); t.join()'",
            "ok",
        ),
        (
            "git",
            "cd /tmp && git init -q x && cd x && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm ok && git log --format=%s",
            "ok",
        ),
        (
            "node",
            "node -e 'new (require(\"worker_threads\").Worker)(\"console.log(require(\\\"os\\\").cpus().length > 0 && Object.keys(require(\\\"os\\\").networkInterfaces())[0])\", {eval: true})'",
            "lo",
        ),
        ("npm", "npm --version >/dev/null && echo ok", "ok"),
        ("perl", "perl -e 'print \"ok\"'", "ok"),
        (
            "curl",
            "curl -s --max-time 3 http://127.0.0.1:1/; [ $? = 7 ] && echo ok",
            "ok",
        ),
    ] {
        if sandbox.sh(&format!("command -v {program}")).await.code != 0 {
            crate::world::skip(program, "the host does not have it in its system folders");
            continue;
        }
        let done = sandbox.sh(script).await;
        assert_eq!(done.out.trim(), expected, "{program}: {done:?}");
    }
    sandbox.destroy().await;
}

#[tokio::test]
async fn the_outside_of_a_sandbox_shows_in_its_environment_only_as_planned() {
    let world = World::new();
    let sandbox = world.sandbox().await;
    let done = sandbox.sh("env | cut -d= -f1 | sort | tr '\\n' ' '; hostname; cat /etc/hostname; getent hosts localhost | wc -l; whoami").await;
    let id = &sandbox.plan.id;
    assert!(
        done.out.ends_with(&format!("{id}\n{id}\n1\nagent\n")),
        "{done:?}"
    );
    // This test itself runs with many variables of that kind; one of ours is among what programs are told.
    let of_outside = |name: &&str| name.starts_with("CARGO") && *name != "CARGO_HTTP_CAINFO";
    let found = done.out.split_whitespace().find(of_outside);
    assert_eq!(found, None, "{done:?}");
    let bundle = sandbox
        .sh("cat $SSL_CERT_FILE > /dev/null && echo ok")
        .await;
    assert_eq!(bundle.out, "ok\n");
    sandbox.destroy().await;
}

#[tokio::test]
async fn the_filters_socket_is_reached_through_the_loopback_port_and_cannot_be_replaced() {
    use tokio::io::AsyncWriteExt;
    let world = World::new();
    let folder = world.dir("egress");
    let filter = tokio::net::UnixListener::bind(folder.join("proxy.sock")).expect("binds");
    let answering = tokio::spawn(async move {
        let (mut stream, _) = filter.accept().await.expect("accepts");
        stream
            .write_all(b"from the filter\n")
            .await
            .expect("writes");
    });
    let mut plan = world.plan(|_| {});
    plan.egress_dir = Some(folder);
    let sandbox = world.start(plan).await.expect("starts");
    let script = "python3 -c 'import os, socket, urllib.parse as u\n\
        p = u.urlparse(os.environ[\"HTTPS_PROXY\"])\n\
        print(socket.create_connection((p.hostname, p.port), 5).makefile().readline())'";
    let done = sandbox.sh(script).await;
    assert_eq!(done.out.trim(), "from the filter", "{done:?}");
    assert_ne!(
        sandbox.sh("rm /run/handler/egress/proxy.sock").await.code,
        0
    );
    answering.await.expect("answered");
    sandbox.destroy().await;
}
