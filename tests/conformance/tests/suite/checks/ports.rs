//! Ports inside: found, shown in a browser, connected to, forwarded.

use super::checks;
use crate::subject::Subject;
use anyhow::{Context as _, ensure};
use handler_client::events::Events;
use handler_testkit::inside::{LONG, Sandbox, show};
use handler_testkit::web::{Reply, http};
use handler_testkit::{World, eventually};
use handler_types::api::SignalRequest;
use handler_types::event::ServerEvent;
use handler_types::network::NetworkPolicy;
use handler_types::port::{ForwardRequest, OpenRequest, PortView};
use handler_types::sandbox::CreateSandbox;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

checks! { "ports":
    a_port_that_opens_is_listed_and_told_of_and_its_end_too;
    a_preview_shows_the_page_to_who_may_see_it_only;
    bytes_come_back_through_a_connection_and_a_forward;
    without_any_network_a_port_is_shown_connected_and_forwarded;
    a_forward_and_the_server_inside_outlive_a_killed_daemon;
    a_browser_that_was_let_in_stays_so_over_a_killed_daemon;
    the_command_line_lists_connects_forwards_and_opens;
}

/// Sends back what it gets, to any number of connections.
async fn echo(sandbox: &Sandbox, port: u16) -> anyhow::Result<u32> {
    let script = format!("exec busybox nc -ll -p {port} -e cat");
    let process = sandbox.start(&script).await?;
    opened(sandbox, port).await?;
    Ok(process)
}

/// A web server with one page.
async fn site(sandbox: &Sandbox, port: u16) -> anyhow::Result<()> {
    let script = format!(
        "mkdir -p ~/www && echo 'the page' >~/www/index.html && exec busybox httpd -f -p 127.0.0.1:{port} -h ~/www"
    );
    sandbox.start(&script).await?;
    opened(sandbox, port).await?;
    Ok(())
}

/// Waits until something listens.
async fn opened(sandbox: &Sandbox, port: u16) -> anyhow::Result<PortView> {
    eventually("the port to open", LONG, || async {
        let ports = sandbox.client.ports(&sandbox.id).await.ok()?;
        ports
            .into_iter()
            .find(|view| view.port == port && view.open)
    })
    .await
}

async fn forward(sandbox: &Sandbox, port: u16) -> anyhow::Result<u16> {
    let request = ForwardRequest {
        port,
        host_port: Some(0),
        ..ForwardRequest::default()
    };
    let made = sandbox.client.forward_port(&sandbox.id, &request).await?;
    Ok(made.forward.context("no forward")?.host_port)
}

/// Says something at a port of this machine, ends that direction, and gives what comes back.
async fn say(port: u16, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let talk = async {
        let (mut from, mut to) = TcpStream::connect(("127.0.0.1", port)).await?.into_split();
        let send = async {
            to.write_all(bytes).await?;
            to.shutdown().await
        };
        let mut answer = Vec::new();
        let (sent, read) = tokio::join!(send, from.read_to_end(&mut answer));
        sent.and(read)?;
        anyhow::Ok(answer)
    };
    tokio::time::timeout(LONG, talk).await?
}

/// The same over the API's own connection.
async fn say_by_connect(sandbox: &Sandbox, port: u16, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let tunnel = sandbox.client.connect_port(&sandbox.id, port).await?;
    let mut answer = std::io::Cursor::new(Vec::new());
    tokio::time::timeout(LONG, tunnel.carry(bytes, &mut answer)).await??;
    Ok(answer.into_inner())
}

/// Asks a preview as a browser would.
async fn ask(
    world: &World,
    id: &str,
    port: u16,
    line: &str,
    more: &[&str],
) -> anyhow::Result<Reply> {
    let own = world.port()?;
    let host = format!("Host: {port}-{id}.localhost:{own}");
    http(own, &[&[line, &host], more].concat(), "").await
}

/// The cookie of a browser that was let in by a ticket, which is good once.
async fn enter(world: &World, sandbox: &Sandbox, port: u16) -> anyhow::Result<String> {
    let request = OpenRequest { path: None };
    let opened = sandbox
        .client
        .open_port(&sandbox.id, port, &request)
        .await?;
    let (_, target) = opened.url.split_once(".localhost:").context("a host")?;
    let (_, target) = target.split_once('/').context("a path")?;
    let line = format!("GET /{target} HTTP/1.1");
    let let_in = ask(world, &sandbox.id, port, &line, &[]).await?;
    ensure!(let_in.status == 303, "{let_in:?}");
    let again = ask(world, &sandbox.id, port, &line, &[]).await?;
    ensure!(again.status == 403, "a ticket was good twice: {again:?}");
    let cookie = let_in.head.split("set-cookie: ").nth(1);
    let cookie = cookie.and_then(|rest| rest.split(';').next());
    Ok(format!("Cookie: {}", cookie.context("no cookie")?))
}

async fn told(
    events: &mut Events,
    sandbox: &Sandbox,
    is_wanted: impl Fn(&[PortView]) -> bool,
) -> anyhow::Result<Vec<PortView>> {
    loop {
        let event = tokio::time::timeout(LONG, events.next()).await??;
        if let ServerEvent::Ports { id, ports } = event.context("no more events")?
            && id == sandbox.id
            && is_wanted(&ports)
        {
            return Ok(ports);
        }
    }
}

async fn a_port_that_opens_is_listed_and_told_of_and_its_end_too(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    ensure!(sandbox.client.ports(&sandbox.id).await?.is_empty());
    let mut events = sandbox.client.events().await?;
    let has = |ports: &[PortView]| ports.iter().any(|view| view.port == 4100);
    let process = echo(&sandbox, 4100).await?;
    let ports = told(&mut events, &sandbox, has).await?;
    let port = ports.iter().find(|view| view.port == 4100).context("it")?;
    ensure!(port.open && port.pid.is_some(), "{port:?}");
    ensure!(
        port.program
            .as_deref()
            .is_some_and(|p| p.contains("busybox") || p.contains("nc")),
        "{port:?}"
    );
    let signal = SignalRequest {
        signal: 9,
        tree: true,
    };
    sandbox.client.signal(&sandbox.id, process, &signal).await?;
    told(&mut events, &sandbox, |ports| !has(ports)).await?;
    ensure!(sandbox.client.ports(&sandbox.id).await?.is_empty());
    s.down(sandbox).await
}

async fn a_preview_shows_the_page_to_who_may_see_it_only(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    site(&sandbox, 3000).await?;
    shows(&world, &sandbox, 3000).await?;
    let cookie = enter(&world, &sandbox, 3000).await?;
    let get = "GET / HTTP/1.1";
    let other = ask(&world, &sandbox.id, 3001, get, &[&cookie]).await?;
    ensure!(
        other.status == 401,
        "a cookie opens another port: {other:?}"
    );
    let token = format!("Authorization: Bearer {}", world.token()?);
    let closed = ask(&world, &sandbox.id, 3001, get, &[&token]).await?;
    ensure!(closed.status == 502, "{closed:?}");
    ensure!(closed.body.contains("port 3001 is not open"), "{closed:?}");
    s.down(sandbox).await
}

/// A preview is refused to strangers and shown to who has the token or a cookie.
async fn shows(world: &World, sandbox: &Sandbox, port: u16) -> anyhow::Result<()> {
    let get = "GET / HTTP/1.1";
    let stranger = ask(world, &sandbox.id, port, get, &[]).await?;
    ensure!(stranger.status == 401, "{stranger:?}");
    ensure!(!stranger.body.contains("the page"), "{stranger:?}");
    let token = format!("Authorization: Bearer {}", world.token()?);
    let cookie = enter(world, sandbox, port).await?;
    for header in [token, cookie] {
        let page = ask(world, &sandbox.id, port, get, &[&header]).await?;
        ensure!(page.status == 200, "{page:?}");
        ensure!(page.body.contains("the page"), "{page:?}");
    }
    Ok(())
}

async fn bytes_come_back_through_a_connection_and_a_forward(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    echo(&sandbox, 4000).await?;
    let bytes: Vec<u8> = (0..400_000_u64)
        .flat_map(|n| (n * n).to_le_bytes())
        .collect();
    let here = forward(&sandbox, 4000).await?;
    ensure!(say(here, &bytes).await? == bytes, "changed by the forward");
    let back = say_by_connect(&sandbox, 4000, &bytes).await?;
    ensure!(back == bytes, "changed by the connection");
    let refused = sandbox.client.connect_port(&sandbox.id, 9).await;
    let refused = refused.err().context("a closed port was connected to")?;
    ensure!(
        refused.to_string().contains("port 9 is not open"),
        "{refused}"
    );
    sandbox.client.unforward_port(&sandbox.id, 4000).await?;
    eventually("the forward's end", LONG, || async {
        let connected = TcpStream::connect(("127.0.0.1", here)).await;
        connected.is_err().then_some(())
    })
    .await?;
    s.down(sandbox).await
}

async fn without_any_network_a_port_is_shown_connected_and_forwarded(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let spec = CreateSandbox {
        network: Some(NetworkPolicy::None),
        ..s.spec()
    };
    let sandbox = s.up(&world, &spec).await?;
    echo(&sandbox, 4000).await?;
    site(&sandbox, 3000).await?;
    shows(&world, &sandbox, 3000).await?;
    ensure!(say_by_connect(&sandbox, 4000, b"hello").await? == b"hello");
    let here = forward(&sandbox, 4000).await?;
    ensure!(say(here, b"hello").await? == b"hello");
    s.down(sandbox).await
}

async fn a_forward_and_the_server_inside_outlive_a_killed_daemon(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    let process = echo(&sandbox, 4000).await?;
    let before = opened(&sandbox, 4000).await?.pid;
    let here = forward(&sandbox, 4000).await?;
    // In the middle of a connection.
    let mut stream = TcpStream::connect(("127.0.0.1", here)).await?;
    stream.write_all(b"half").await?;
    let mut half = [0; 4];
    tokio::time::timeout(LONG, stream.read_exact(&mut half)).await??;
    world.kill9()?;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await?;
    ensure!(rest.is_empty(), "{rest:?}");
    world.start_daemon().await?;
    sandbox.client = world.client();
    let answer = eventually("the forward", LONG, || async {
        say(here, b"again")
            .await
            .ok()
            .filter(|answer| !answer.is_empty())
    });
    ensure!(answer.await? == b"again");
    let port = opened(&sandbox, 4000).await?;
    ensure!(port.pid == before, "another server: {port:?}");
    ensure!(
        port.forward
            .is_some_and(|forward| forward.host_port == here)
    );
    ensure!(sandbox.progress(process).await?.1.is_none());
    s.down(sandbox).await
}

async fn a_browser_that_was_let_in_stays_so_over_a_killed_daemon(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let mut world = s.alone().await;
    let mut sandbox = s.plain(&world).await?;
    site(&sandbox, 3000).await?;
    let cookie = enter(&world, &sandbox, 3000).await?;
    world.kill9()?;
    world.start_daemon().await?;
    sandbox.client = world.client();
    let page = eventually("the page", LONG, || async {
        let get = "GET / HTTP/1.1";
        let page = ask(&world, &sandbox.id, 3000, get, &[&cookie]).await.ok()?;
        (page.status == 200).then_some(page)
    })
    .await?;
    ensure!(page.body.contains("the page"), "{page:?}");
    s.down(sandbox).await
}

async fn the_command_line_lists_connects_forwards_and_opens(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    let id = sandbox.id.as_str();
    echo(&sandbox, 4200).await?;
    let listed = world.cli_ok(&["--json", "sandbox", "ports", id]).await?;
    let listed: Vec<PortView> = serde_json::from_str(&listed)?;
    ensure!(
        listed.len() == 1 && listed[0].port == 4200 && listed[0].open,
        "{listed:?}"
    );
    let args = ["sandbox", "connect", id, "4200"];
    let said = world.cli_with_input(&args, b"typed in").await?;
    ensure!(said.stdout == b"typed in", "{}", show(&said.stderr));
    let kept = world
        .cli_ok(&["sandbox", "forward", "--keep", id, "0:4200"])
        .await?;
    let here = kept.trim().strip_suffix(" -> 4200").context("a forward")?;
    let here = here.rsplit(':').next().context("a port")?.parse()?;
    ensure!(say(here, b"kept").await? == b"kept");
    world
        .cli_ok(&["sandbox", "forward", "--remove", id, "4200"])
        .await?;
    ensure!(say(here, b"kept").await.is_err(), "it is still there");
    let url = world
        .cli_ok(&["--json", "sandbox", "open", id, "4200"])
        .await?;
    ensure!(url.contains(&format!("4200-{id}.localhost")), "{url}");
    s.down(sandbox).await
}
