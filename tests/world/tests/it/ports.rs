//! Ports of a sandbox: listed, told of, forwarded over restarts, connected to.

use crate::support::{LONG, Sandbox, has_tools, show, world};
use anyhow::Context as _;
use handler_client::ClientError;
use handler_testkit::{World, eventually};
use handler_types::ProblemCode;
use handler_types::port::{ForwardRequest, PortView};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Takes connections one after another: reads all, and only then answers how much it was and what came first.
const LISTENER: &str = "
import socket, sys
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print('listening', flush=True)
while True:
    client, _ = server.accept()
    total, first = 0, b''
    while block := client.recv(65536):
        first = first or block[:5]
        total += len(block)
    client.sendall(b'%d %s' % (total, first))
    client.close()
";

async fn listen(sandbox: &Sandbox, port: u16) -> anyhow::Result<u32> {
    let script = format!("exec /usr/bin/python3 - {port} <<'APP'\n{LISTENER}\nAPP");
    let process = sandbox.start(&script).await?;
    sandbox
        .attach(process, None)
        .await?
        .until("listening")
        .await?;
    Ok(process)
}

/// Says something at an address, ends that direction, and gives what comes back.
async fn say(port: u16, text: &[u8]) -> anyhow::Result<String> {
    let talk = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(text).await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    tokio::time::timeout(LONG, talk).await?
}

fn find(ports: &[PortView], port: u16) -> Option<&PortView> {
    ports.iter().find(|view| view.port == port)
}

fn request(port: u16) -> ForwardRequest {
    ForwardRequest {
        port,
        host_port: Some(0),
        ..ForwardRequest::default()
    }
}

fn host_port(view: &PortView) -> anyhow::Result<u16> {
    Ok(view.forward.as_ref().context("no forward")?.host_port)
}

fn code(error: &ClientError) -> Option<ProblemCode> {
    error.problem().map(|problem| problem.code)
}

#[tokio::test]
async fn a_forwarded_port_closes_halves_right_and_is_there_again_after_a_restart()
-> anyhow::Result<()> {
    if !has_tools("a_forwarded_port_closes_halves_right", &["python3"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    listen(&sandbox, 4000).await?;
    let client = sandbox.client.clone();
    let made = client.forward_port(&sandbox.id, &request(4000)).await?;
    assert!(made.open, "{made:?}");
    let here = host_port(&made)?;
    // It answers only after the end of what we say has come through.
    assert_eq!(say(here, b"hello world").await?, "11 hello");
    let again = client.forward_port(&sandbox.id, &request(4000)).await?;
    assert_eq!(host_port(&again)?, here, "once is enough");
    let big = vec![b'x'; 20_000_000];
    assert_eq!(say(here, &big).await?, "20000000 xxxxx");

    world.kill9()?;
    world.start_daemon().await?;
    let answer = eventually("the forward", LONG, || async {
        say(here, b"again").await.ok()
    });
    assert_eq!(answer.await?, "5 again");
    let client = world.client();
    let ports = client.ports(&sandbox.id).await?;
    assert_eq!(host_port(find(&ports, 4000).context("listed")?)?, here);

    client.unforward_port(&sandbox.id, 4000).await?;
    let refused = eventually("its end", LONG, || async {
        TcpStream::connect(("127.0.0.1", here))
            .await
            .is_err()
            .then_some(())
    });
    refused.await?;
    let error = client
        .unforward_port(&sandbox.id, 4000)
        .await
        .expect_err("gone");
    assert_eq!(code(&error), Some(ProblemCode::NotFound), "{error}");
    // A forward goes with its sandbox.
    let made = client.forward_port(&sandbox.id, &request(4000)).await?;
    client.delete_sandbox(&sandbox.id).await?;
    let here = host_port(&made)?;
    eventually("its end", LONG, || async {
        TcpStream::connect(("127.0.0.1", here))
            .await
            .is_err()
            .then_some(())
    })
    .await
}

#[tokio::test]
async fn ports_are_listed_with_their_program_and_told_of_as_they_open_and_close()
-> anyhow::Result<()> {
    if !has_tools("ports_are_listed_with_their_program", &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let client = sandbox.client.clone();
    assert_eq!(client.ports(&sandbox.id).await?, vec![]);
    let mut events = client.events().await?;
    let process = listen(&sandbox, 4100).await?;
    let told = async |is_wanted: &dyn Fn(&[PortView]) -> bool,
                      events: &mut handler_client::events::Events| {
        loop {
            let event = tokio::time::timeout(LONG, events.next()).await??;
            let event = event.context("no more events")?;
            if let handler_types::event::ServerEvent::Ports { id, ports } = event
                && id == sandbox.id
                && is_wanted(&ports)
            {
                return anyhow::Ok(ports);
            }
        }
    };
    let opened = told(&|ports| find(ports, 4100).is_some(), &mut events).await?;
    let port = find(&opened, 4100).context("told")?;
    assert!(
        port.open && port.address.as_deref() == Some("127.0.0.1"),
        "{port:?}"
    );
    assert!(
        port.program
            .as_deref()
            .is_some_and(|program| program.starts_with("python")),
        "{port:?}"
    );
    let table = world.cli_ok(&["sandbox", "ports", &sandbox.id]).await?;
    assert!(table.contains("4100  open   python"), "{table}");
    let signal = handler_types::api::SignalRequest {
        signal: 9,
        tree: true,
    };
    client.signal(&sandbox.id, process, &signal).await?;
    told(&|ports| find(ports, 4100).is_none(), &mut events).await?;
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_forwarded_or_reached_is_told_why() -> anyhow::Result<()> {
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    let client = sandbox.client.clone();
    let forward = async |request: ForwardRequest| {
        let refused = client.forward_port(&sandbox.id, &request).await;
        refused.expect_err("refused")
    };
    let open = ForwardRequest {
        bind: Some("0.0.0.0".into()),
        ..request(80)
    };
    let error = forward(open).await;
    assert_eq!(code(&error), Some(ProblemCode::Forbidden), "{error}");
    assert!(
        error.to_string().contains("HANDLER_FORWARD_BIND=0.0.0.0"),
        "{error}"
    );
    let error = forward(request(0)).await;
    assert_eq!(code(&error), Some(ProblemCode::Invalid), "{error}");
    let taken = ForwardRequest {
        host_port: Some(world.port()?),
        ..request(80)
    };
    let error = forward(taken).await;
    assert_eq!(code(&error), Some(ProblemCode::Conflict), "{error}");
    let error = client
        .connect_port(&sandbox.id, 9)
        .await
        .err()
        .context("refused")?;
    assert_eq!(code(&error), Some(ProblemCode::BackendFailed), "{error}");
    assert!(error.to_string().contains("port 9 is not open"), "{error}");
    let error = client
        .connect_port("nobody", 9)
        .await
        .err()
        .context("refused")?;
    assert_eq!(code(&error), Some(ProblemCode::NotFound), "{error}");
    let said = world.cli(&["sandbox", "connect", &sandbox.id, "9"]).await?;
    assert_eq!(said.status.code(), Some(1));
    // A port that is forwarded and not open hangs up at once.
    let made = client.forward_port(&sandbox.id, &request(9)).await?;
    assert!(!made.open, "{made:?}");
    assert!(say(host_port(&made)?, b"x").await.is_err());
    Ok(())
}

#[tokio::test]
async fn an_address_that_the_settings_name_may_be_forwarded_from() -> anyhow::Result<()> {
    // Another loopback address stands for one that others reach.
    let world = World::builder()
        .env("HANDLER_FORWARD_BIND", "0.0.0.0")
        .start()
        .await?;
    let sandbox = Sandbox::plain(&world).await?;
    let wish = ForwardRequest {
        bind: Some("0.0.0.0".into()),
        ..request(80)
    };
    let made = sandbox.client.forward_port(&sandbox.id, &wish).await?;
    assert_eq!(made.forward.context("made")?.bind, "0.0.0.0");
    Ok(())
}

#[tokio::test]
async fn the_command_line_connects_and_forwards() -> anyhow::Result<()> {
    if !has_tools("the_command_line_connects_and_forwards", &["python3"]) {
        return Ok(());
    }
    let world = world().await?;
    let sandbox = Sandbox::plain(&world).await?;
    listen(&sandbox, 4200).await?;
    let said = world
        .cli_with_input(&["sandbox", "connect", &sandbox.id, "4200"], b"typed in")
        .await?;
    assert_eq!(show(&said.stdout), "8 typed", "{}", show(&said.stderr));
    let mut forward = tokio::process::Command::from(world.command());
    let mut forward = forward
        .args(["sandbox", "forward", &sandbox.id, "0:4200", "0:9"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(forward.stdout.take().context("output")?).lines();
    let line = tokio::time::timeout(LONG, lines.next_line()).await??;
    let line = line.context("a line")?;
    let (here, inside) = line.split_once(" -> ").context("a forward")?;
    assert_eq!(inside, "4200");
    let here = here.rsplit(':').next().context("a port")?.parse()?;
    assert_eq!(say(here, b"through here").await?, "12 throu");
    forward.kill().await?;
    let kept = world
        .cli_ok(&["sandbox", "forward", "--keep", &sandbox.id, "0:4200"])
        .await?;
    let here = kept.trim().strip_suffix(" -> 4200").context("a forward")?;
    let here = here.rsplit(':').next().context("a port")?.parse()?;
    assert_eq!(say(here, b"kept").await?, "4 kept");
    world
        .cli_ok(&["sandbox", "forward", "--remove", &sandbox.id, "4200"])
        .await?;
    assert!(say(here, b"kept").await.is_err());
    Ok(())
}
