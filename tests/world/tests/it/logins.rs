//! A login in a sandbox: its server renews it for requests from inside, and the sandbox never holds a token.

use crate::search::{holds, search_files};
use crate::support::{LONG, Sandbox, alias, has_tools, http, show, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{World, eventually};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A server that takes each refresh token once, as many do.
struct Issuer {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    access: String,
    refresh: String,
    /// Every token there ever was.
    all: Vec<String>,
    /// What was asked for, and whether it was given.
    asked: Vec<(String, bool)>,
}

impl State {
    /// New tokens of the same form as those before.
    fn issue(&mut self) {
        let signature = handler_base::random::hex(32);
        self.access = format!("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.{signature}");
        self.refresh = format!("rt_{}", handler_base::random::hex(24));
        // Of the access token the signature is what must not be seen.
        self.all.extend([signature, self.refresh.clone()]);
    }

    fn answer(&mut self, request: &str) -> (u16, String) {
        let is_token = request.starts_with("POST /oauth/token");
        let given = match is_token {
            true => request.contains(&format!("refresh_token={}", self.refresh)),
            false => request.contains(&format!("Bearer {}\r\n", self.access)),
        };
        let line = request.lines().next().unwrap_or_default().to_owned();
        self.asked.push((line, given));
        match (given, is_token) {
            (true, true) => {
                self.issue();
                let (access, refresh) = (&self.access, &self.refresh);
                let body = format!(
                    "{{\"access_token\":\"{access}\",\"refresh_token\":\"{refresh}\",\"expires_in\":3600,\"token_type\":\"Bearer\"}}"
                );
                (200, body)
            }
            (true, false) => (
                200,
                format!("{{\"you\":\"known\",\"sent\":\"{}\"}}", self.access),
            ),
            (false, _) => (400, "{\"error\":\"invalid_grant\"}".to_owned()),
        }
    }
}

impl Issuer {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let mut first = State::default();
        first.issue();
        let state = Arc::new(Mutex::new(first));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                tokio::spawn(async move { serve(stream, &state).await });
            }
        });
        Ok(Self { port, state })
    }

    fn with<T>(&self, work: impl FnOnce(&State) -> T) -> T {
        work(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file as Codex keeps it.
    fn file(&self) -> String {
        self.with(|state| {
            format!(
                "{{\"OPENAI_API_KEY\":null,\"tokens\":{{\"access_token\":\"{}\",\"refresh_token\":\"{}\",\"account_id\":\"acc-1\"}},\"last_refresh\":\"2026-01-01T00:00:00Z\"}}",
                state.access, state.refresh
            )
        })
    }
}

/// One request, one answer.
async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok()?;
        text.extend_from_slice(&piece[..read]);
        let request = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = request.split_once("\r\n\r\n").unwrap_or((&request, ""));
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        let is_whole = request.contains("\r\n\r\n") && body.len() >= length.unwrap_or(0);
        if !is_whole && read > 0 {
            continue;
        }
        let (status, body) = state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .answer(&request);
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        return stream.write_all(answer.as_bytes()).await.ok();
    }
}

/// What an agent program does: refresh with what its file says, write down what came, and use it.
const PROGRAM: &str = "\
import json, os, sys, time, urllib.error, urllib.parse, urllib.request as r
path = os.path.expanduser('~/.codex/auth.json')
base = sys.argv[1]
login = json.load(open(path))
def ask(request):
    for _ in range(100):
        try:
            return r.urlopen(request, timeout=60).read()
        except urllib.error.HTTPError as error:
            said = '%s %s' % (error.code, error.read().decode())
            if error.code != 503:
                break
            time.sleep(0.5)
    sys.exit(said)
form = {'grant_type': 'refresh_token', 'refresh_token': login['tokens']['refresh_token']}
new = json.loads(ask(r.Request(base + '/oauth/token', data=urllib.parse.urlencode(form).encode())))
login['tokens'].update({name: new[name] for name in ('access_token', 'refresh_token')})
json.dump(login, open(path, 'w'))
bearer = {'Authorization': 'Bearer ' + new['access_token']}
print(ask(r.Request(base + '/me', headers=bearer)).decode())
";

async fn up(world: &World, name: &str) -> anyhow::Result<Sandbox> {
    let login = "codex=~/.codex/auth.json";
    world
        .cli_ok(&[
            "sandbox",
            "up",
            "--no-folder",
            "--name",
            name,
            "--login",
            login,
        ])
        .await?;
    Ok(Sandbox {
        client: world.client(),
        id: name.into(),
    })
}

/// Refreshes inside and uses what came; what the sandbox has then.
async fn refresh(sandbox: &Sandbox, issuer: &Issuer) -> anyhow::Result<String> {
    let script = format!(
        "cat > /tmp/agent.py <<'PROGRAM'\n{PROGRAM}PROGRAM\npython3 /tmp/agent.py http://{}",
        alias(issuer.port)
    );
    let said = sandbox.out(&script).await?;
    ensure!(said.contains("\"you\":\"known\""), "{said}");
    let all = sandbox.out("cat ~/.codex/auth.json; env").await?;
    Ok(format!("{said}\n{all}"))
}

async fn add(world: &World, issuer: &Issuer) -> anyhow::Result<()> {
    let host = alias(issuer.port);
    let args = ["login", "add", "codex", "--file", "-", "--host", &host];
    let added = world
        .cli_with_input(&args, issuer.file().as_bytes())
        .await?;
    ensure!(added.status.success(), "{added:?}");
    let told = show(&added.stdout);
    ensure!(told.contains("/tokens/refresh_token"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_login_is_renewed_from_inside_over_a_killed_daemon_and_no_sandbox_holds_a_token()
-> anyhow::Result<()> {
    if !has_tools("a_login_is_renewed_from_inside", &["python3"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let issuer = Issuer::start().await?;
    add(&world, &issuer).await?;
    let first = up(&world, "first").await?;
    let mode = first.out("stat -c %a ~/.codex/auth.json").await?;
    assert_eq!(mode, "600");
    let mut seen = refresh(&first, &issuer).await?;
    world.kill9()?;
    world.start_daemon().await?;
    seen += &refresh(&first, &issuer).await?;
    // Another sandbox of the same login begins with what the first one's request renewed; and so back.
    let second = up(&world, "second").await?;
    seen += &refresh(&second, &issuer).await?;
    seen += &refresh(&first, &issuer).await?;
    let (asked, all) = issuer.with(|state| (state.asked.clone(), state.all.clone()));
    assert_eq!(asked.len(), 8, "{asked:?}");
    assert!(asked.iter().all(|(_, given)| *given), "{asked:?}");
    assert!(!holds(seen.as_bytes(), &all), "a token is inside: {seen}");
    assert!(seen.contains("account_id") && seen.contains("acc-1"));

    let answers = api_answers(&world).await?;
    assert!(answers.contains("/tokens/access_token"), "{answers}");
    assert!(!holds(answers.as_bytes(), &all), "{answers}");
    let busy = world.cli(&["login", "rm", "codex"]).await?;
    assert!(!busy.status.success());
    assert!(show(&busy.stderr).contains("first"), "{busy:?}");
    world.client().delete_sandbox("first").await?;
    world.client().delete_sandbox("second").await?;
    let third = up(&world, "third").await?;
    refresh(&third, &issuer).await?;
    world.stop_daemon().await?;
    let all = issuer.with(|state| state.all.clone());
    let (mut found, mut read) = (Vec::new(), 0);
    search_files(world.scratch().path(), &all, &mut found, &mut read)?;
    assert!(found.is_empty() && read > 5, "{found:?} of {read}");
    let sealed = world.scratch().folder("data").join("logins.json.sealed");
    assert!(std::fs::metadata(sealed)?.len() > 48, "it is kept, sealed");
    Ok(())
}

/// What the API says of logins and sandboxes.
async fn api_answers(world: &World) -> anyhow::Result<String> {
    let port = world.port()?;
    let token = format!("Authorization: Bearer {}", world.token()?);
    let host = format!("Host: 127.0.0.1:{port}");
    let mut all = String::new();
    for path in [
        "/v1/logins",
        "/v1/secrets",
        "/v1/sandboxes",
        "/v1/sandboxes/first",
        "/v1/sandboxes/first/egress",
        "/v1/sandboxes/first/logs",
        "/v1/audit",
    ] {
        let line = format!("GET {path} HTTP/1.1");
        let answer = http(port, &[&line, &host, &token], "").await?;
        all += &format!("{path} {} {}\n", answer.head, answer.body);
    }
    Ok(all)
}

#[tokio::test]
async fn a_renewal_while_the_daemon_is_dead_is_kept_by_the_next_one() -> anyhow::Result<()> {
    if !has_tools("a_renewal_while_the_daemon_is_dead", &["python3"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let issuer = Issuer::start().await?;
    add(&world, &issuer).await?;
    let sandbox = up(&world, "first").await?;
    let script = format!(
        "cat > /tmp/agent.py <<'PROGRAM'\n{PROGRAM}PROGRAM\n\
         until [ -e /tmp/go ]; do sleep 0.1; done; python3 /tmp/agent.py http://{} > /tmp/said 2>&1; touch /tmp/done",
        alias(issuer.port)
    );
    sandbox.start(&script).await?;
    sandbox.start("sleep 2; touch /tmp/go").await?;
    world.kill9()?;
    eventually("a refresh without a daemon", LONG, || {
        let asked = issuer.with(|state| state.asked.len());
        std::future::ready((asked >= 1).then_some(()))
    })
    .await?;
    world.start_daemon().await?;
    let said = eventually("the program's end", LONG, || async {
        sandbox.out("[ -e /tmp/done ] && cat /tmp/said").await.ok()
    })
    .await?;
    assert!(said.contains("\"you\":\"known\""), "{said}");
    refresh(&sandbox, &issuer).await?;
    let (asked, all) = issuer.with(|state| (state.asked.clone(), state.all.clone()));
    assert!(asked.iter().all(|(_, given)| *given), "{asked:?}");
    let inside = sandbox.out("cat ~/.codex/auth.json /tmp/said").await?;
    assert!(!holds(inside.as_bytes(), &all), "{inside}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_login_is_refused_before_anything_is_made() -> anyhow::Result<()> {
    let world = world().await?;
    let add = ["login", "add", "bad", "--file", "-"];
    for file in [
        "",
        "hello",
        "{\"account\":\"planted-1\"}",
        "{\"token\":\"pl ted\"}",
    ] {
        let refused = world.cli_with_input(&add, file.as_bytes()).await?;
        let told = show(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains("file: "),
            "{file}: {told}"
        );
        assert!(
            !told.contains("pl ted") && !told.contains("planted"),
            "{told}"
        );
    }
    let up = |login: &'static str| ["sandbox", "up", "--no-folder", "--login", login];
    let missing = world.cli(&up("none=~/.codex/auth.json")).await?;
    assert!(
        show(&missing.stderr).contains("handler login add none"),
        "{missing:?}"
    );
    let file = b"{\"token\":\"planted-token-1\"}";
    let added = world
        .cli_with_input(&["login", "add", "bare", "--file", "-"], file)
        .await?;
    assert!(added.status.success(), "{added:?}");
    for (login, says) in [
        ("bare=~/a.json", "at least one host"),
        ("bare=../a.json", "path"),
        ("bare", "NAME=PATH"),
    ] {
        let refused = world.cli(&up(login)).await?;
        let told = show(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains(says),
            "{login}: {told}"
        );
    }
    let left = world.client().sandboxes("", 10).await?;
    assert!(left.items.is_empty(), "{left:?}");
    world.cli_ok(&["login", "rm", "bare"]).await?;
    let none = world.cli_ok(&["--json", "login", "list"]).await?;
    let none: serde_json::Value = serde_json::from_str(&none)?;
    assert_eq!(none.as_array().context("a list")?.len(), 0);
    Ok(())
}
