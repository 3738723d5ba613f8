//! Listening TCP sockets and who holds them.

use crate::guest::Guest;
use crate::system::table::{name, ours};
use handler_types::guest::ListeningPort;
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most sockets told.
const MOST: usize = 1024;
/// Most bytes read of each table.
const TABLE: u64 = 8 * 1024 * 1024;
/// State of a listening socket in the kernel's tables.
const LISTEN: &str = "0A";

/// A listening socket.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// All of them, by port; the guest's own are left out.
pub(crate) fn ports(guest: &Guest) -> Vec<ListeningPort> {
    let mut sockets = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let mut text = String::new();
        if let Ok(file) = std::fs::File::open(table) {
            let _ = file.take(TABLE).read_to_string(&mut text);
        }
        sockets.extend(text.lines().skip(1).filter_map(parse));
    }
    sockets.truncate(MOST);
    let holders = if sockets.is_empty() {
        HashMap::new()
    } else {
        holders(guest, &sockets)
    };
    let mut found = BTreeMap::new();
    for socket in sockets {
        let pid = holders.get(&socket.inode).copied();
        if pid == Some(guest.own_pid) {
            continue;
        }
        // Several processes may share a port; the first is told.
        found
            .entry((socket.port, socket.address))
            .or_insert_with(|| ListeningPort {
                port: socket.port,
                address: socket.address.to_string(),
                pid,
                program: pid.map(name),
            });
    }
    found.into_values().collect()
}

/// One line of a table.
fn parse(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    Some(Socket {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Each word of four bytes is written in the machine's order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for at in (0..text.len()).step_by(8) {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(Ipv4Addr::from(v4).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).into())
}

/// Which process has which socket open, of those wanted.
fn holders(guest: &Guest, sockets: &[Socket]) -> HashMap<u64, i32> {
    let mut found = HashMap::new();
    for process in ours(guest) {
        let Ok(files) = std::fs::read_dir(format!("/proc/{}/fd", process.pid)) else {
            continue;
        };
        for file in files.flatten() {
            let inode = std::fs::read_link(file.path()).ok().and_then(|target| {
                let text = target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?;
                text.parse::<u64>().ok()
            });
            if let Some(inode) = inode
                && sockets.iter().any(|socket| socket.inode == inode)
            {
                found.entry(inode).or_insert(process.pid);
            }
        }
        if found.len() == sockets.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_and_others_left_out() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let line = line.replace("0100007F", &word([127, 0, 0, 1]));
        let expected = Socket {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 8080,
            inode: 4711,
        };
        assert_eq!(parse(&line), Some(expected));
        assert_eq!(parse(&line.replace(" 0A ", " 01 ")), None);
        let six = format!(
            "{}{}{}{}",
            word([0; 4]),
            word([0; 4]),
            word([0; 4]),
            word([0, 0, 0, 1])
        );
        assert_eq!(parse_address(&six), Some(Ipv6Addr::LOCALHOST.into()));
        for odd in ["", "0: zz 0 0A", "0: ä0007F:1F90 0 0A 0 0 0 0 0 1"] {
            assert_eq!(parse(odd), None);
        }
    }
}
