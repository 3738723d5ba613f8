//! Previews: an app inside, seen by a browser at an address of its own, and nothing else seen through it.

use crate::support::{LONG, Reply, Sandbox, has_tools, http, show, world};
use anyhow::Context as _;
use handler_testkit::{World, eventually};
use handler_types::port::OpenRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const APP: &str = include_str!("app.py");
const PORT: u16 = 3000;

/// A world with an app in a sandbox.
struct Stage {
    world: World,
    sandbox: Sandbox,
}

impl Stage {
    /// `None`, said loudly, without Python.
    async fn set(test: &str) -> anyhow::Result<Option<Self>> {
        if !has_tools(test, &["python3"]) {
            return Ok(None);
        }
        let world = world().await?;
        let sandbox = Sandbox::plain(&world).await?;
        let stage = Self { world, sandbox };
        stage.run_app(PORT).await?;
        Ok(Some(stage))
    }

    async fn run_app(&self, port: u16) -> anyhow::Result<()> {
        let script = format!("exec /usr/bin/python3 - {port} <<'APP'\n{APP}\nAPP");
        let process = self.sandbox.start(&script).await?;
        let mut feed = self.sandbox.attach(process, None).await?;
        feed.until("listening").await?;
        Ok(())
    }

    fn host(&self, port: u16) -> anyhow::Result<String> {
        let own = self.world.port()?;
        Ok(format!("{port}-{}.localhost:{own}", self.sandbox.id))
    }

    async fn ask(&self, host: &str, line: &str, headers: &[&str]) -> anyhow::Result<Reply> {
        let host = format!("Host: {host}");
        let head = [&[line, &host], headers].concat();
        http(self.world.port()?, &head, "").await
    }

    /// Opens the preview of a port: the cookie a browser then has.
    async fn enter(&self, port: u16) -> anyhow::Result<String> {
        let target = self.ticket(port, None).await?;
        let line = format!("GET {target} HTTP/1.1");
        let reply = self.ask(&self.host(port)?, &line, &[]).await?;
        anyhow::ensure!(reply.status == 303, "{reply:?}");
        let cookie = reply.head.split("set-cookie: ").nth(1);
        let cookie = cookie.and_then(|rest| rest.split(';').next());
        Ok(format!("Cookie: {}", cookie.context("no cookie")?))
    }

    /// The path with a new ticket.
    async fn ticket(&self, port: u16, path: Option<&str>) -> anyhow::Result<String> {
        let path = path.map(ToOwned::to_owned);
        let request = OpenRequest { path };
        let client = &self.sandbox.client;
        let url = client
            .open_port(&self.sandbox.id, port, &request)
            .await?
            .url;
        let prefix = format!("http://{}", self.host(port)?);
        let target = url.strip_prefix(&prefix).context("another host")?;
        Ok(target.to_owned())
    }
}

#[tokio::test]
async fn a_browser_is_let_in_once_by_a_ticket_and_then_by_its_cookie() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_browser_is_let_in_once").await? else {
        return Ok(());
    };
    let host = stage.host(PORT)?;
    let stranger = stage.ask(&host, "GET / HTTP/1.1", &[]).await?;
    assert_eq!(stranger.status, 401, "{stranger:?}");
    assert!(
        stranger.body.contains("handler sandbox open"),
        "{stranger:?}"
    );

    let target = stage.ticket(PORT, Some("/deep?x=%20y")).await?;
    let line = format!("GET {target} HTTP/1.1");
    let elsewhere = stage.ask(&stage.host(PORT + 1)?, &line, &[]).await?;
    assert_eq!(elsewhere.status, 403, "a ticket is of one preview");
    let entered = stage.ask(&host, &line, &[]).await?;
    assert_eq!(entered.status, 303, "{entered:?}");
    for wanted in [
        "location: /deep?x=%20y\r\n",
        "; httponly",
        "samesite=lax",
        "cache-control: no-store",
    ] {
        assert!(entered.head.contains(wanted), "{wanted}: {entered:?}");
    }
    assert!(!entered.head.contains("domain="), "{entered:?}");
    let again = stage.ask(&host, &line, &[]).await?;
    assert_eq!(again.status, 403, "{again:?}");

    let cookie = stage.enter(PORT).await?;
    let headers = [cookie.as_str(), "Authorization: Basic b3du"];
    let page = stage.ask(&host, "GET /page?a=b HTTP/1.1", &headers).await?;
    assert_eq!(page.status, 200, "{page:?}");
    let seen: serde_json::Value = serde_json::from_str(&page.body)?;
    assert_eq!(seen["path"], "/page?a=b");
    let header = |name: &str| {
        let all = seen["headers"].as_array()?;
        let found = all.iter().find(|pair| pair[0] == name)?;
        found[1].as_str().map(ToOwned::to_owned)
    };
    assert_eq!(header("host"), Some(host.clone()));
    assert_eq!(header("x-forwarded-host"), Some(host.clone()));
    assert_eq!(header("authorization").as_deref(), Some("Basic b3du"));
    assert_eq!(header("cookie"), None, "our cookie stays here");
    // With the API's token a program gets in as well, and the app does not see it.
    let token = stage.world.token()?;
    let bearer = format!("Authorization: Bearer {token}");
    let page = stage.ask(&host, "GET / HTTP/1.1", &[&bearer]).await?;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(!page.body.contains(&token), "{page:?}");
    assert!(!page.body.contains("authorization"), "{page:?}");
    Ok(())
}

#[tokio::test]
async fn a_cookie_opens_its_own_preview_and_nothing_else() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_cookie_opens_its_own_preview").await? else {
        return Ok(());
    };
    stage.run_app(PORT + 1).await?;
    let cookie = stage.enter(PORT).await?;
    let own = stage.host(PORT)?;
    let other = stage.host(PORT + 1)?;
    let ask = async |host: &str, line: &str, headers: &[&str]| {
        let reply = stage.ask(host, line, headers).await?;
        anyhow::Ok(reply.status)
    };
    assert_eq!(ask(&own, "GET / HTTP/1.1", &[&cookie]).await?, 200);
    assert_eq!(ask(&other, "GET / HTTP/1.1", &[&cookie]).await?, 401);
    // The API takes no cookie, and no page of a preview, whatever it has.
    let api = format!("127.0.0.1:{}", stage.world.port()?);
    let list = "GET /v1/sandboxes HTTP/1.1";
    assert_eq!(ask(&api, list, &[&cookie]).await?, 401);
    let bearer = format!("Authorization: Bearer {}", stage.world.token()?);
    let origin = format!("Origin: http://{own}");
    assert_eq!(ask(&api, list, &[&bearer]).await?, 200);
    assert_eq!(ask(&api, list, &[&bearer, &origin]).await?, 403);
    let create = "POST /v1/sandboxes HTTP/1.1";
    let simple = "Content-Type: text/plain";
    assert_eq!(ask(&api, create, &[&cookie, &origin, simple]).await?, 403);
    // What is at the API is not at a preview's name.
    let there = stage.ask(&own, list, &[&cookie]).await?;
    assert!(
        there.body.contains("\"path\": \"/v1/sandboxes\""),
        "{there:?}"
    );
    let upgrade = [
        bearer.as_str(),
        &origin,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    let connect = format!(
        "GET /v1/sandboxes/{}/connect/{PORT} HTTP/1.1",
        stage.sandbox.id
    );
    assert_eq!(ask(&api, &connect, &upgrade).await?, 403);
    // One preview's page at another preview.
    let theirs = stage.enter(PORT + 1).await?;
    let get = "GET / HTTP/1.1";
    assert_eq!(ask(&other, get, &[&theirs]).await?, 200);
    assert_eq!(ask(&other, get, &[&theirs, &origin]).await?, 403);
    let fetched = ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"];
    let headers = [&[theirs.as_str()][..], &fetched].concat();
    assert_eq!(ask(&other, get, &headers).await?, 403);
    let socket = [&[theirs.as_str(), &origin][..], &upgrade[2..]].concat();
    assert_eq!(ask(&other, "GET /ws HTTP/1.1", &socket).await?, 403);
    // An app cannot plant cookies elsewhere, nor forge ours.
    let planted = stage.ask(&own, "GET /cookie HTTP/1.1", &[&cookie]).await?;
    assert!(
        planted.head.contains("set-cookie: own=1; path=/\r\n"),
        "{planted:?}"
    );
    assert!(!planted.head.contains("handler_preview"), "{planted:?}");
    assert!(!planted.head.contains("domain"), "{planted:?}");
    Ok(())
}

/// Reads until `wanted` has come.
async fn until(stream: &mut TcpStream, wanted: &str) -> anyhow::Result<String> {
    let mut seen = Vec::new();
    let mut block = [0; 4096];
    loop {
        let count = tokio::time::timeout(LONG, stream.read(&mut block)).await??;
        anyhow::ensure!(count > 0, "it ended: {}", show(&seen));
        seen.extend_from_slice(&block[..count]);
        if show(&seen).contains(wanted) {
            return Ok(show(&seen));
        }
    }
}

#[tokio::test]
async fn streams_and_websockets_pass_both_ways_as_they_come() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("streams_and_websockets_pass").await? else {
        return Ok(());
    };
    let (host, port) = (stage.host(PORT)?, stage.world.port()?);
    let cookie = stage.enter(PORT).await?;
    let connect = async |request: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request.as_bytes()).await?;
        anyhow::Ok(stream)
    };
    // The first event is here before the app has written the second.
    let request = format!("GET /sse HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n\r\n");
    let mut events = connect(request).await?;
    let first = until(&mut events, "data: one").await?;
    assert!(!first.contains("data: two"), "{first}");
    let heard = stage.ask(&host, "POST /heard HTTP/1.1", &[&cookie]).await?;
    assert_eq!(heard.body, "ok");
    until(&mut events, "data: two").await?;
    // The same connection takes the next request.
    let request = format!("GET /next HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n\r\n");
    events.write_all(request.as_bytes()).await?;
    until(&mut events, "\"path\": \"/next\"").await?;

    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\nOrigin: http://{host}\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut socket = connect(upgrade).await?;
    let head = until(&mut socket, "\r\n\r\n").await?.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(
        head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{head}"
    );
    // A text frame with the mask 0.
    for text in ["hello", "and again"] {
        let mut frame = vec![0x81, 0x80 | u8::try_from(text.len())?, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        socket.write_all(&frame).await?;
        until(&mut socket, text).await?;
    }
    Ok(())
}

#[tokio::test]
async fn large_bodies_pass_whole_in_pieces_and_with_a_length() -> anyhow::Result<()> {
    const SIZE: usize = 40 * 1024 * 1024;
    if !has_tools("large_bodies_pass_whole", &["curl"]) {
        return Ok(());
    }
    let Some(stage) = Stage::set("large_bodies_pass_whole").await? else {
        return Ok(());
    };
    let file = stage.world.work().join("body");
    let body: Vec<u8> = (0..SIZE / 8)
        .flat_map(|n| (n * 2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(&file, &body)?;
    let sum = tokio::process::Command::new("sha256sum")
        .arg(&file)
        .output()
        .await?;
    let sum = show(&sum.stdout);
    let wanted = format!("{SIZE} {}", sum.split(' ').next().context("a sum")?);
    let (host, cookie) = (stage.host(PORT)?, stage.enter(PORT).await?);
    for form in ["Content-Type: text/plain", "Transfer-Encoding: chunked"] {
        let reply = tokio::process::Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "120",
                "--data-binary",
            ])
            .arg(format!("@{}", file.display()))
            .args(["--header", &cookie, "--header", form])
            .args(["--header", &format!("Host: {host}")])
            .arg(format!("http://127.0.0.1:{}/", stage.world.port()?))
            .output()
            .await?;
        assert_eq!(
            show(&reply.stdout),
            wanted,
            "{form}: {}",
            show(&reply.stderr)
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_shown_is_told_in_plain_words() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("what_cannot_be_shown").await? else {
        return Ok(());
    };
    let token = format!("Authorization: Bearer {}", stage.world.token()?);
    let get = "GET / HTTP/1.1";
    let closed = stage.ask(&stage.host(9)?, get, &[&token]).await?;
    assert_eq!(closed.status, 502, "{closed:?}");
    assert!(closed.body.contains("port 9 is not open"), "{closed:?}");
    assert!(
        closed.head.contains("content-type: text/plain"),
        "{closed:?}"
    );
    let own = stage.world.port()?;
    let nobody = format!("3000-sb0000000000000000.localhost:{own}");
    let gone = stage.ask(&nobody, get, &[&token]).await?;
    assert_eq!(gone.status, 404, "{gone:?}");
    stage.sandbox.client.stop_sandbox(&stage.sandbox.id).await?;
    let rests = stage.ask(&stage.host(PORT)?, get, &[&token]).await?;
    assert_eq!(rests.status, 503, "{rests:?}");
    // A name that only looks like a preview is no way around the check of names.
    let foreign = format!("3000-{}.localhost.evil.example:{own}", stage.sandbox.id);
    let foreign = stage
        .ask(&foreign, "GET /v1/health HTTP/1.1", &[&token])
        .await?;
    assert_eq!(foreign.status, 403, "{foreign:?}");
    Ok(())
}

#[tokio::test]
async fn a_cookie_is_still_good_after_the_daemon_was_away() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_cookie_is_still_good").await? else {
        return Ok(());
    };
    let cookie = stage.enter(PORT).await?;
    let own = stage.world.port()?;
    let (before, id) = (stage.host(PORT)?, stage.sandbox.id.clone());
    assert!(before.ends_with(&format!(":{own}")));
    stage.world.kill9()?;
    stage.world.start_daemon().await?;
    let host = format!("{PORT}-{id}.localhost:{}", stage.world.port()?);
    let page = eventually("the page", LONG, || async {
        let page = stage.ask(&host, "GET / HTTP/1.1", &[&cookie]).await.ok()?;
        (page.status == 200).then_some(page)
    })
    .await?;
    assert!(page.body.contains("\"path\""), "{page:?}");
    Ok(())
}
