//! This machine by every spelling of its addresses.

use super::{ALIAS, Case, send};

/// Spellings, and what they are.
const SPELLINGS: &[(&str, &str)] = &[
    ("127.0.0.1", "plain"),
    ("127.0.0.2", "another of the loopback network"),
    ("127.1", "short"),
    ("127.0.1", "short, three parts"),
    ("2130706433", "one decimal number"),
    ("017700000001", "one octal number"),
    ("0x7f000001", "one hexadecimal number"),
    ("0177.0.0.1", "octal part"),
    ("0x7f.0.0.1", "hexadecimal part"),
    ("127.0.0.1.", "a dot at the end"),
    ("0.0.0.0", "any address"),
    ("0", "any address, short"),
    ("[::1]", "IPv6"),
    ("[0:0:0:0:0:0:0:1]", "IPv6, long"),
    ("[::]", "any address, IPv6"),
    ("[::ffff:127.0.0.1]", "IPv4-mapped"),
    ("[::ffff:7f00:1]", "IPv4-mapped, hexadecimal"),
    ("[::127.0.0.1]", "IPv4-compatible"),
    ("[::ffff:0:127.0.0.1]", "IPv4-translated"),
    ("[64:ff9b::127.0.0.1]", "NAT64"),
    ("[2002:7f00:1::]", "6to4"),
    ("[fe80::1%lo]", "link-local with a zone"),
    ("[fe80::1%25lo]", "link-local with a percent-encoded zone"),
    ("localhost", "name"),
    ("LocalHost", "name, mixed case"),
    ("localhost.", "name, a dot at the end"),
    ("a.localhost", "name below localhost"),
    ("%31%32%37.0.0.1", "percent-encoded"),
    ("127.0.0.1%00.example.com", "a NUL, percent-encoded"),
    ("\u{ff11}27.0.0.1", "full-width digit"),
    ("127\u{3002}0\u{3002}0\u{3002}1", "ideographic full stops"),
    ("user@127.0.0.1", "user information"),
    (
        "example.com:443@127.0.0.1",
        "another host as user information",
    ),
    ("example.com#@127.0.0.1", "another host and a fragment"),
    ("example.com\\@127.0.0.1", "another host and a backslash"),
    ("127.0.0.1 ", "a space at the end"),
    ("127.0.0.1\t", "a tab at the end"),
    ("10.0.2.2", "the gateway of a user-mode network"),
    ("10.88.0.1", "the gateway of a container network"),
    ("172.17.0.1", "the gateway of another container network"),
    ("169.254.1.2", "the host's address of a user-mode network"),
    ("169.254.169.254", "a cloud's metadata"),
    ("[fd00:ec2::254]", "a cloud's metadata, IPv6"),
    ("100.100.100.200", "another cloud's metadata"),
    ("metadata.google.internal", "a cloud's metadata by name"),
];

/// Names that this machine's own list of hosts may lead to itself.
pub(super) fn names_of_this_machine() -> Vec<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut names: Vec<String> = hosts
        .lines()
        .filter(|line| line.starts_with("127.") || line.starts_with("::1"))
        .flat_map(|line| line.split_whitespace().skip(1))
        .filter(|name| !name.contains("localhost") && *name != ALIAS)
        .filter(|name| {
            format!("{name}:1")
                .parse::<handler_types::network::AllowEntry>()
                .is_ok()
        })
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Each spelling and this machine's own names, as the host of a forwarded request and of a tunnel.
pub(super) fn cases() -> Vec<Case> {
    cases_with(&names_of_this_machine())
}

/// The same with these names.
pub(super) fn cases_with(names: &[String]) -> Vec<Case> {
    let own = names
        .iter()
        .map(|name| (name.as_str(), "this machine's own name, though listed"));
    SPELLINGS
        .iter()
        .copied()
        .chain(own)
        .enumerate()
        .flat_map(|(number, (host, what))| {
            let what = format!("`{}`: {what}", host.escape_default());
            [forwarded(number, host, &what), tunnel(number, host, &what)]
        })
        .collect()
}

fn forwarded(number: usize, host: &str, what: &str) -> Case {
    let name = format!("address-{number}-forwarded");
    let request = format!(
        "GET http://{host}:{{F}}/escaped-{name} HTTP/1.1\r\nHost: {host}:{{F}}\r\nConnection: close\r\n\r\n"
    );
    Case::new(&name, what, send(&request))
}

fn tunnel(number: usize, host: &str, what: &str) -> Case {
    let name = format!("address-{number}-tunnel");
    let request = format!(
        "CONNECT {host}:{{F}} HTTP/1.1\r\nHost: {host}:{{F}}\r\n\r\nGET /escaped-{name} HTTP/1.0\r\n\r\n"
    );
    Case::new(&name, what, send(&request))
}
