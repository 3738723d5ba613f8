//! Requests that look as if they went to the host that is allowed.

use super::{ALIAS, Case, send};

/// Heads and bodies; `@` stands for the host that is allowed, `!` for one that is not, `~` for the case's name.
const REQUESTS: &[(&str, &str, &str)] = &[
    (
        "host-differs",
        "`Host` names another host than the request line",
        "GET http://@/first HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "two-hosts",
        "two `Host` lines",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\nHost: !\r\n\r\n",
    ),
    (
        "two-hosts-turned",
        "two `Host` lines, the other one first",
        "GET http://@/first HTTP/1.1\r\nHost: !\r\nHost: @\r\n\r\n",
    ),
    (
        "no-authority",
        "only `Host` says where to",
        "GET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "empty-authority",
        "a URL without a host",
        "GET http:///~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "other-scheme",
        "a scheme that is none of a proxy's",
        "GET ftp://!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "file-scheme",
        "a file of the machine",
        "GET file:///etc/passwd?~ HTTP/1.1\r\nHost: @\r\n\r\n",
    ),
    (
        "unix-scheme",
        "a Unix socket of the machine",
        "GET unix:///var/run/docker.sock?~ HTTP/1.1\r\nHost: @\r\n\r\n",
    ),
    (
        "network-path",
        "a path that begins like a host",
        "GET //!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "credentials",
        "the host that is allowed as user information",
        "GET http://@@!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "backslash",
        "a backslash before the other host",
        "GET http://@\\@!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "fragment",
        "a fragment before the other host",
        "GET http://@#@!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "query-host",
        "a question mark before the other host",
        "GET http://!?@/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "kept-alive",
        "a second request on a kept connection",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\n\r\nGET http://!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "kept-alive-path",
        "a second request that is only a path",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "length-and-chunks",
        "a length and chunks",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "chunks-and-length",
        "chunks and a longer length",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "two-lengths",
        "two lengths",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "length-list",
        "two lengths in one line",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nContent-Length: 0, 40\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "signed-length",
        "a length with a sign",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nContent-Length: +0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "coding-space",
        "a space before the colon",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "coding-tab",
        "a tab before the coding",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "coding-unknown",
        "a coding nobody knows",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "coding-twice",
        "chunked and another coding",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "chunk-extension",
        "a chunk's extension with a line end in it",
        "POST http://@/first HTTP/1.1\r\nHost: @\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\nb\"\r\nx\r\n0\r\n\r\nGET /~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "folded",
        "a folded header line",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\nX: a\r\n GET http://!/~ HTTP/1.1\r\n\r\n",
    ),
    (
        "bare-lf",
        "line ends without carriage return",
        "GET http://!/~ HTTP/1.1\nHost: @\n\n",
    ),
    (
        "bare-cr",
        "a carriage return in a header",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\nX: a\rHost: !\rGET /~\r\n\r\n",
    ),
    (
        "nul",
        "a NUL in the request line",
        "GET http://@\0!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    ("http-0-9", "HTTP/0.9", "GET http://!/~\r\n"),
    (
        "http-2-preface",
        "HTTP/2 in clear text",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n~ !",
    ),
    (
        "upgrade-h2c",
        "an upgrade to HTTP/2 in clear text",
        "GET http://!/~ HTTP/1.1\r\nHost: !\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
    ),
    (
        "hop-by-hop-host",
        "`Host` named as a header of this hop",
        "GET http://@/first HTTP/1.1\r\nHost: !\r\nConnection: Host\r\n\r\n",
    ),
    (
        "connect-other-host",
        "a tunnel whose `Host` is allowed",
        "CONNECT ! HTTP/1.1\r\nHost: @\r\n\r\nGET /~ HTTP/1.0\r\n\r\n",
    ),
    (
        "connect-path",
        "a tunnel to a URL",
        "CONNECT http://!/ HTTP/1.1\r\nHost: @\r\n\r\nGET /~ HTTP/1.0\r\n\r\n",
    ),
    (
        "connect-two",
        "a tunnel to two hosts",
        "CONNECT @,! HTTP/1.1\r\nHost: @\r\n\r\nGET /~ HTTP/1.0\r\n\r\n",
    ),
    (
        "connect-body",
        "a tunnel with a body, and a request behind it",
        "CONNECT ! HTTP/1.1\r\nHost: !\r\nContent-Length: 4\r\n\r\nabcdGET http://!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "after-denied",
        "a request behind a refused tunnel",
        "CONNECT ! HTTP/1.1\r\nHost: !\r\n\r\nGET http://!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "method",
        "a method nobody knows",
        "TUNNEL http://!/~ HTTP/1.1\r\nHost: !\r\n\r\n",
    ),
    (
        "override",
        "headers that ask to go elsewhere",
        "GET http://@/first HTTP/1.1\r\nHost: @\r\nX-Forwarded-Host: !\r\nX-Original-URL: http://!/\r\nForwarded: host=!\r\nX-Rewrite-URL: http://!/\r\n\r\n",
    ),
    (
        "proxy-credentials",
        "credentials for the proxy",
        "GET http://!/~ HTTP/1.1\r\nHost: !\r\nProxy-Authorization: Basic YWRtaW46YWRtaW4=\r\n\r\n",
    ),
    (
        "socks-5",
        "SOCKS 5 to the same port",
        "\u{5}\u{1}\0\u{5}\u{1}\0\u{1}\u{7f}\0\0\u{1}\u{4}\u{d2}~",
    ),
    (
        "socks-4",
        "SOCKS 4 to the same port",
        "\u{4}\u{1}\u{4}\u{d2}\u{7f}\0\0\u{1}\0~",
    ),
];

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    REQUESTS
        .iter()
        .map(|(name, what, request)| Case::new(name, what, send(&filled(name, request))))
        .collect()
}

/// `@@` is the allowed host followed by the sign itself.
fn filled(name: &str, request: &str) -> String {
    let mark = "\u{1}";
    request
        .replace("@@", &format!("{mark}\u{2}"))
        .replace("\\@", "\\\u{2}")
        .replace("#@", "#\u{2}")
        .replace('@', mark)
        .replace('\u{2}', "@")
        .replace(mark, &format!("{ALIAS}:{{A}}"))
        .replace('!', "127.0.0.1:{F}")
        .replace('~', &format!("escaped-{name}"))
}
