//! Small programs in plain `sh` that look at a sandbox from inside; they work with busybox and with a whole system.

/// A field of `/proc/self/status`, e.g. `CapEff`.
pub(crate) fn status(field: &str) -> String {
    format!("grep '^{field}:' /proc/self/status | tr -d ' \\t' | cut -d: -f2")
}

/// Fetches a URL through the proxy the environment names; prints the body.
pub(crate) fn get(url: &str) -> String {
    format!("timeout 20 busybox wget -q -O - '{url}'")
}

/// Fetches a URL without any proxy.
pub(crate) fn get_direct(url: &str) -> String {
    format!(
        "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; timeout 3 busybox wget -q -O - '{url}'"
    )
}
