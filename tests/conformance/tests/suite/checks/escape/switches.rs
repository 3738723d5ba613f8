//! Settings, variables and answers that would turn the list off.

use super::{ALIAS, Case, send};

fn wget(settings: &str, url: &str) -> String {
    format!("{settings} timeout 5 busybox wget -q -O - '{url}'")
}

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let trap = "http://127.0.0.1:'$F'/escaped-";
    let redirect = |name: &str, to: &str| {
        send(&format!(
            "GET http://{ALIAS}:{{A}}/redirect?to={to} HTTP/1.1\r\nHost: {ALIAS}:{{A}}\r\nConnection: close\r\n\r\n"
        )) + &format!(
            "; {}",
            wget("", &format!("http://{ALIAS}:'$A'/redirect?to={trap}{name}"))
        )
    };
    let scripts = [
        ("no-proxy", "`NO_PROXY=*`", wget("NO_PROXY='*' no_proxy='*'", &format!("{trap}no-proxy"))),
        ("unset", "no proxy variable", format!("unset http_proxy HTTP_PROXY https_proxy HTTPS_PROXY ALL_PROXY; {}", wget("", &format!("{trap}unset")))),
        ("other-proxy", "another proxy named", wget("http_proxy=http://127.0.0.1:$F", &format!("http://{ALIAS}:'$A'/escaped-other-proxy"))),
        ("proxy-itself", "the way out through itself", send("GET http://127.0.0.1:{P}/escaped-itself HTTP/1.1\r\nHost: 127.0.0.1:{P}\r\nConnection: close\r\n\r\n")),
        ("proxy-chain", "a tunnel to the way out, and a request in it", send("CONNECT localhost:{P} HTTP/1.1\r\nHost: localhost:{P}\r\n\r\nGET http://127.0.0.1:{F}/escaped-chain HTTP/1.1\r\nHost: 127.0.0.1:{F}\r\n\r\n")),
        ("redirect", "a redirect by the host that is allowed", redirect("redirect", "http://127.0.0.1:{F}/escaped-redirect")),
        ("redirect-name", "a redirect to a name of this machine", redirect("redirect-name", "http://localhost:{F}/escaped-redirect-name")),
        ("hosts-file", "a name of one's own in the list of hosts", format!("echo '127.0.0.1 escaped.example' >>/etc/hosts; {}", wget("", "http://escaped.example:'$F'/escaped-hosts"))),
        ("resolver-file", "a resolver of one's own", format!("echo 'nameserver 127.0.0.1' >/etc/resolv.conf; {}", wget("", "http://escaped.example:'$F'/escaped-resolver"))),
        ("take-the-port", "the port of the way out for oneself", "busybox nc -l -p $P -w 1".to_owned()),
        ("kill-the-forwarder", "the forwarder ended", "for p in /proc/[0-9]*; do case \"$(busybox cat $p/comm)\" in *handler*|*guest*) kill -STOP ${p#/proc/};; esac; done; true".to_owned()),
        ("bad-authority", "the sandbox's own authority replaced", "echo x >/run/handler/ca-bundle.pem && echo made >>/tmp/escape/bad; true".to_owned()),
        ("settings", "files of the way out inside", "for f in /run/handler/* /run/handler/*/*; do [ -f \"$f\" ] && (echo x >\"$f\") 2>/dev/null && echo \"$f\" >>/tmp/escape/bad; done; true".to_owned()),
    ];
    scripts
        .into_iter()
        .map(|(name, what, script)| Case::new(name, what, script))
        .collect()
}
