//! Transparent mode: programs that know no proxy reach what is listed and are refused everything else at once.
//! Proxy variables are taken away from every program here.

use crate::support::{Sandbox, alias, filtered, has_tools, world};
use anyhow::{Context as _, ensure};
use handler_testkit::inside::LONG;
use handler_testkit::{HttpOrigin, TcpOrigin, World, eventually, skip};
use handler_types::api::NetworkUpdate;
use handler_types::egress::EgressDecision;
use handler_types::network::{NetworkPolicy, Transparent};
use handler_types::sandbox::CreateSandbox;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Takes away what tells of the proxy.
pub(crate) const BARE: &str =
    "unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy NO_PROXY no_proxy;";

/// Whether this machine can; else says so.
pub(crate) fn has_device(test: &str) -> bool {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(error) = &opened {
        skip(test, &format!("/dev/net/tun: {error}"));
    }
    opened.is_ok()
}

async fn up(
    world: &World,
    network: NetworkPolicy,
    transparent: Transparent,
) -> anyhow::Result<Sandbox> {
    let spec = CreateSandbox {
        network: Some(network),
        transparent,
        ..CreateSandbox::default()
    };
    Sandbox::up(world, &spec).await
}

async fn on(world: &World, entries: &[String]) -> anyhow::Result<Sandbox> {
    up(world, filtered(entries)?, Transparent::Required).await
}

/// Runs a Python program that must not know of the proxy and must end well; gives what it said.
async fn python(sandbox: &Sandbox, program: &str) -> anyhow::Result<String> {
    let done = sandbox
        .python(&format!(
            "import os\nfor n in list(os.environ):\n  if 'proxy' in n.lower(): del os.environ[n]\n{program}"
        ))
        .await?;
    ensure!(done.exit.code == 0, "{done:?}");
    Ok(done.stdout.trim().to_owned())
}

#[tokio::test]
async fn a_program_that_knows_no_proxy_reaches_what_is_listed_and_nothing_else()
-> anyhow::Result<()> {
    let test = "a_program_that_knows_no_proxy";
    if !has_device(test) || !has_tools(test, &["curl"]) {
        return Ok(());
    }
    let world = world().await?;
    let (listed, other) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let sandbox = on(&world, &[alias(listed.port())]).await?;
    let curl = |host: &str| format!("{BARE} curl -sS -m 30 http://{host}/");
    let said = sandbox.out(&curl(&alias(listed.port()))).await?;
    assert_eq!(said, "hello from origin");
    // The name is listed, with another port: found, and refused.
    let refused = sandbox.fails(&curl(&alias(other.port()))).await?;
    assert!(refused.stderr.contains("(7)"), "{refused:?}");
    for address in ["127.0.0.1", "192.0.2.1", "169.254.169.254", "10.0.2.2"] {
        let refused = sandbox
            .fails(&curl(&format!("{address}:{}", other.port())))
            .await?;
        assert!(refused.stderr.contains("(7)"), "{address}: {refused:?}");
    }
    let unknown = sandbox.fails(&curl("unlisted.example")).await?;
    assert!(unknown.stderr.contains("(6)"), "{unknown:?}");
    assert_eq!(other.requests().len(), 0);
    let events = sandbox.client.sandbox_egress(&sandbox.id).await?;
    for host in [alias(other.port()), format!("192.0.2.1:{}", other.port())] {
        let denied = |event: &&handler_types::egress::EgressEvent| {
            event.host == host && event.decision == EgressDecision::Denied
        };
        assert!(
            events.iter().any(|event| denied(&event)),
            "{host}: {events:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_tcp_is_refused_at_once() -> anyhow::Result<()> {
    let test = "what_is_no_tcp_is_refused";
    if !has_device(test) || !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = on(&world, &["listed.example:443".into()]).await?;
    // No time limit is set: a program that is not told would wait for ever and the test with it.
    let said = python(
        &sandbox,
        "import socket as s\n\
         def told(what, f):\n\
         \x20 try: f(); print(what, 'went out')\n\
         \x20 except OSError as e: print(what, type(e).__name__, e.errno)\n\
         def udp(a, p):\n\
         \x20 u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.connect((a, p)); u.send(b'x'); u.recv(9)\n\
         made_up = s.gethostbyname('listed.example')\n\
         told('far', lambda: udp('192.0.2.1', 443))\n\
         told('resolver', lambda: udp('8.8.8.8', 53))\n\
         told('named', lambda: udp(made_up, 443))\n\
         told('stack', lambda: udp('198.18.0.2', 123))\n\
         told('six', lambda: s.create_connection(('2001:db8::1', 443)))\n\
         told('unlisted port', lambda: s.create_connection((made_up, 80)))\n\
         told('unused address', lambda: s.create_connection(('198.19.7.7', 80)))\n\
         told('the resolver itself', lambda: s.create_connection(('198.18.0.2', 80)))\n\
         told('no name', lambda: s.getaddrinfo('other.example', 443))\n\
         told('six of a name', lambda: s.getaddrinfo('listed.example', 443, s.AF_INET6))\n\
         print(made_up)",
    )
    .await?;
    let refused = "ConnectionRefusedError 111";
    for what in [
        "far",
        "resolver",
        "named",
        "stack",
        "unlisted port",
        "unused address",
    ] {
        assert!(
            said.contains(&format!("{what} {refused}\n")),
            "{what}: {said}"
        );
    }
    assert!(
        said.contains(&format!("the resolver itself {refused}\n")),
        "{said}"
    );
    assert!(said.contains("six OSError 101\n"), "{said}");
    assert!(said.contains("no name gaierror"), "{said}");
    assert!(said.contains("six of a name gaierror"), "{said}");
    assert!(said.ends_with("198.18.1.0"), "{said}");
    Ok(())
}

#[tokio::test]
async fn names_are_answered_over_tcp_as_well() -> anyhow::Result<()> {
    let test = "names_are_answered_over_tcp";
    if !has_device(test) || !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = on(&world, &["listed.example:443".into()]).await?;
    let said = python(
        &sandbox,
        "import socket,struct\n\
         q=lambda name: b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0'+b''.join(bytes([len(l)])+l for l in name.split(b'.'))+b'\\0\\0\\1\\0\\1'\n\
         c=socket.create_connection(('198.18.0.2',53)); f=c.makefile('rb')\n\
         for name in (b'listed.example', b'other.example'):\n\
         \x20 c.sendall(struct.pack('>H',len(q(name)))+q(name))\n\
         \x20 m=f.read(struct.unpack('>H',f.read(2))[0]); print(m[3]&15, m[7])",
    )
    .await?;
    assert_eq!(said, "0 1\n3 0");
    Ok(())
}

#[tokio::test]
async fn bytes_arrive_whole_both_ways_and_each_direction_ends_on_its_own() -> anyhow::Result<()> {
    let test = "bytes_arrive_whole_both_ways";
    if !has_device(test) || !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let echo = TcpOrigin::start().await?;
    let sandbox = on(&world, &[alias(echo.port())]).await?;
    let (host, port) = ("host.containers.internal", echo.port());
    let said = python(
        &sandbox,
        &format!(
            "import socket,hashlib,threading,random\n\
             c=socket.create_connection(('{host}',{port}))\n\
             data=random.randbytes(20_000_000)\n\
             def write(): c.sendall(data); c.shutdown(socket.SHUT_WR)\n\
             t=threading.Thread(target=write); t.start()\n\
             back=hashlib.sha256(); n=0\n\
             while b:=c.recv(65536): back.update(b); n+=len(b)\n\
             t.join(); print(n, back.digest()==hashlib.sha256(data).digest())"
        ),
    )
    .await?;
    assert_eq!(said, "20000000 True");
    Ok(())
}

#[tokio::test]
async fn many_connections_at_once_are_kept_apart() -> anyhow::Result<()> {
    let test = "many_connections_at_once";
    if !has_device(test) || !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let echo = TcpOrigin::start().await?;
    let sandbox = on(&world, &[alias(echo.port())]).await?;
    let (host, port) = ("host.containers.internal", echo.port());
    let program = format!(
        "import socket\n\
         all=[socket.create_connection(('{host}',{port})) for _ in range(200)]\n\
         for n,c in enumerate(all): c.sendall(b'%04d'%n)\n\
         print(all_right:=[c.recv(4) for c in all]==[b'%04d'%n for n in range(200)])"
    );
    // Again and again: what was used is free again.
    for _ in 0..3 {
        assert_eq!(python(&sandbox, &program).await?, "True");
    }
    Ok(())
}

/// Speaks first, as SSH and mail servers do, and says its name again after it heard one.
async fn speaks_first() -> anyhow::Result<(u16, tokio::task::JoinHandle<()>)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let task = handler_base::tasks::spawn_named("speaks first", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut heard = [0; 6];
            let _ = stream.write_all(b"SSH-2.0-first\r\n").await;
            if stream.read_exact(&mut heard).await.is_ok() {
                let _ = stream.write_all(&heard).await;
            }
        }
    });
    Ok((port, task))
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard() -> anyhow::Result<()> {
    let test = "a_server_that_speaks_first";
    if !has_device(test) || !has_tools(test, &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let (port, task) = speaks_first().await?;
    let sandbox = on(&world, &[alias(port)]).await?;
    let said = python(
        &sandbox,
        &format!(
            "import socket\nc=socket.create_connection(('host.containers.internal',{port})); f=c.makefile('rb')\n\
             print(f.readline().decode().strip()); c.sendall(b'hello\\n'); print(f.readline().decode().strip(), f.read())"
        ),
    )
    .await?;
    assert_eq!(said, "SSH-2.0-first\nhello b''");
    task.abort();
    Ok(())
}

#[tokio::test]
async fn it_can_be_switched_off_and_says_whether_it_is_on() -> anyhow::Result<()> {
    let world = world().await?;
    let off = up(
        &world,
        filtered(&["listed.example:443".into()])?,
        Transparent::Off,
    )
    .await?;
    let devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort";
    assert_eq!(off.out(devices).await?, "lo");
    assert_eq!(
        off.out("grep -c nameserver.127.0.0.1 /etc/resolv.conf")
            .await?,
        "1"
    );
    let view = world.client().sandbox(&off.id).await?;
    let state = view.transparent.context("a state")?;
    assert!(!state.on && state.reason.is_some(), "{state:?}");
    let none = up(&world, NetworkPolicy::None, Transparent::Auto).await?;
    assert_eq!(none.out(devices).await?, "lo");
    let refused = up(&world, NetworkPolicy::None, Transparent::Required).await;
    let refused = refused.err().context("required without a way out")?;
    assert!(
        format!("{refused:#}").contains("lets nothing out"),
        "{refused:#}"
    );
    if !has_device("it_can_be_switched_off_and_says_whether_it_is_on") {
        return Ok(());
    }
    let auto = up(
        &world,
        filtered(&["listed.example:443".into()])?,
        Transparent::Auto,
    )
    .await?;
    assert_eq!(auto.out(devices).await?, "handler0\nlo");
    let view = world.client().sandbox(&auto.id).await?;
    assert!(view.transparent.is_some_and(|state| state.on));
    auto.fails("test -e /dev/net/tun").await?;
    Ok(())
}

#[tokio::test]
async fn new_rules_and_a_new_daemon_change_nothing_for_the_device() -> anyhow::Result<()> {
    let test = "new_rules_and_a_new_daemon";
    if !has_device(test) || !has_tools(test, &["curl"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let origin = HttpOrigin::start().await?;
    let sandbox = on(&world, &[]).await?;
    let curl = format!("{BARE} curl -sS -m 30 http://{}/", alias(origin.port()));
    sandbox.fails(&curl).await?;
    let network = filtered(&[alias(origin.port())])?;
    let update = NetworkUpdate { network };
    world.client().set_network(&sandbox.id, &update).await?;
    // The resolver may remember its last word for a second.
    let reached = async |sandbox: &Sandbox| {
        eventually("the origin", LONG, || async {
            sandbox.out(&curl).await.ok()
        })
        .await
    };
    assert_eq!(reached(&sandbox).await?, "hello from origin");
    world.kill9()?;
    world.start_daemon().await?;
    let again = Sandbox {
        id: sandbox.id.clone(),
        client: world.client(),
    };
    assert_eq!(reached(&again).await?, "hello from origin");
    Ok(())
}
