//! Ways to use a key, right and wrong, from inside.

use crate::clients::{Place, has_module};
use crate::search::base64;
use crate::support::alias;
use anyhow::ensure;
use handler_testkit::skip;

/// Requests that reach the key's host, with the path they are for. `$HERE` is the host.
const RIGHT: &[(&str, &str)] = &[
    (
        "curl -sSf -m 60 -H \"Authorization: Bearer $TOKEN\" https://$HERE/hello",
        "/hello",
    ),
    (
        "curl -sSf -m 60 --http1.1 -u \"user:$TOKEN\" https://$HERE/hello",
        "/hello",
    ),
    (
        "curl -sSf -m 60 -G --data-urlencode \"q=$TOKEN\" https://$HERE/hello",
        "/hello",
    ),
    (
        "curl -sSf -m 60 --http2 --data-urlencode \"q=$TOKEN\" https://$HERE/form",
        "/form",
    ),
    (
        "curl -sSf -m 60 --data-binary \"q=$TOKEN\" -H 'Transfer-Encoding: chunked' https://$HERE/chunks",
        "/chunks",
    ),
    (
        "python3 -c \"import os,json; print(json.dumps({'k':os.environ['TOKEN']}),end='')\" \
      | curl -sSf -m 60 -H 'Content-Type: application/json' --data-binary @- https://$HERE/json",
        "/json",
    ),
    (
        "python3 -c \"import os,sys,gzip; sys.stdout.buffer.write(gzip.compress(os.environ['TOKEN'].encode()))\" \
      | curl -sSf -m 60 -H 'Content-Encoding: gzip' --data-binary @- https://$HERE/gzip",
        "/gzip",
    ),
];

/// Requests that are refused, or go where the key is worthless.
const WRONG: &[&str] = &[
    "curl -sS -m 60 -H \"X-Key: $TOKEN\" http://unlisted.example/",
    "curl -sS -m 60 -u \"me:$TOKEN\" http://unlisted.example/",
    "curl -sS -m 60 --data-binary \"$TOKEN\" http://unlisted.example/",
    "curl -sS -m 60 -G --data-urlencode \"q=$TOKEN\" http://unlisted.example/",
    "curl -sS -m 60 -H \"X-Key: $TOKEN\" https://unlisted.example/",
    "curl -sS -m 60 -H \"X-Key: $TOKEN\" -H 'Host: other.example' https://$HERE/hello",
    "curl -sS -m 60 --path-as-is -X \"$TOKEN\" https://$HERE/hello",
    "curl -sS -m 60 -H \"Content-Encoding: gzip\" --data-binary \"$TOKEN\" https://$HERE/broken",
    "curl -sS -m 60 -H \"X-Key: $TOKEN\" \"https://$THERE/hello\"",
];

/// A WebSocket on which the key goes and comes back.
const SOCKET: &str = "import os,ssl,urllib.parse as u,websocket as w; \
     p=u.urlparse(os.environ['https_proxy']); \
     c=w.create_connection('wss://'+os.environ['HERE']+'/ws',http_proxy_host=p.hostname,http_proxy_port=p.port,\
     proxy_type='http',sslopt={'ca_certs':os.environ['SSL_CERT_FILE']}); c.send('key '+os.environ['TOKEN']); \
     print(c.recv())";

fn here(place: &Place, script: &str) -> String {
    let [given, other] = place.origin.ports.map(alias);
    format!("HERE={given}; THERE={other}; export HERE THERE; {script}")
}

/// All of them. Each right one must arrive with something put in the place of the stand-in, and come back with
/// the stand-in.
pub(super) async fn all(test: &str, place: &Place) -> anyhow::Result<()> {
    for (script, path) in RIGHT {
        let answer = place.sandbox.sh(&here(place, script)).await?;
        ensure!(answer.exit.code == 0, "{script}: {answer:?}");
        let arrived = place.origin.arrived(place.origin.ports[0], path)?;
        let basic = base64(format!("user:{}", place.value).as_bytes());
        let is_there = arrived.mentions(&place.value[..20]) || arrived.mentions(&basic);
        ensure!(is_there, "{script}: {arrived:?}");
        let start = &place.phantom[..20];
        ensure!(!arrived.mentions(start), "{script}: {arrived:?}");
        let is_echo = *path != "/hello";
        ensure!(
            !is_echo || answer.stdout.contains(start),
            "{script}: {answer:?}"
        );
    }
    for script in WRONG {
        // How each ends is others' matter.
        place.sandbox.sh(&here(place, script)).await?;
    }
    if has_module("websocket") {
        let script = format!("/usr/bin/python3 -c \"{SOCKET}\"");
        let said = place.sandbox.out(&here(place, &script)).await?;
        ensure!(said == format!("key {}", place.phantom), "{said}");
    } else {
        skip(test, "the WebSocket: there is no python3-websocket");
    }
    Ok(())
}

/// Leaves what programs leave: files with the environment and with answers, output that is kept, and a process
/// that has an answer in its memory; its number.
pub(super) async fn keep(place: &Place) -> anyhow::Result<u32> {
    let script = "env >/tmp/environment; printf %s \"$TOKEN\" >~/key; curl -sSf -m 60 -D /tmp/head -o /tmp/answer \
         -H \"X-Key: $TOKEN\" --data-urlencode \"q=$TOKEN\" https://$HERE/kept; cat /tmp/answer /tmp/head";
    place.sandbox.out(&here(place, script)).await?;
    let program = "import os,time,urllib.request as r\n\
         q=r.Request('https://'+os.environ['HERE']+'/keeper',data=os.environ['TOKEN'].encode(),\
         headers={'X-Key':os.environ['TOKEN']})\n\
         kept=r.urlopen(q).read(); print('kept',len(kept),flush=True); time.sleep(6000)";
    let script = here(place, &format!("exec /usr/bin/python3 -c \"{program}\""));
    let process = place.sandbox.start(&script).await?;
    let wanted = format!("kept {}\n", place.phantom.len());
    place
        .sandbox
        .attach(process, None)
        .await?
        .until(&wanted)
        .await?;
    Ok(process)
}

/// One use, which succeeds when a filter is there.
pub(super) fn again(place: &Place) -> String {
    here(place, RIGHT[0].0)
}
