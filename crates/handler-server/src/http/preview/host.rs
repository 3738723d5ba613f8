//! Which preview a request is for, by its `Host`.

use crate::app::previews::Preview;
use axum::http::{HeaderMap, header};

/// The preview of a request, if its host is one at the daemon's `port`.
pub(super) fn preview(headers: &HeaderMap, port: u16) -> Option<Preview> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    if hosts.next().is_some() {
        return None;
    }
    of_authority(host, port)
}

fn of_authority(authority: &str, own_port: u16) -> Option<Preview> {
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    if port.parse() != Ok(own_port) {
        return None;
    }
    let host = host.to_ascii_lowercase();
    let (port, sandbox) = host.strip_suffix(".localhost")?.split_once('-')?;
    let is_plain = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
    Some(Preview {
        sandbox: sandbox.parse().ok()?,
        port: port.parse().ok().filter(|_| is_plain)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::SandboxId;

    #[test]
    fn only_the_name_of_a_preview_at_our_port_is_one() {
        let id = SandboxId::from_random([0xab; 8]);
        let good = format!("3000-{id}.localhost:7430");
        let wanted = Preview {
            sandbox: id.clone(),
            port: 3000,
        };
        assert_eq!(of_authority(&good, 7430), Some(wanted.clone()));
        assert_eq!(of_authority(&good.to_uppercase(), 7430), Some(wanted));
        for bad in [
            format!("3000-{id}.localhost:7431"),
            format!("3000-{id}.localhost"),
            format!("3000-{id}.localhost.evil.example:7430"),
            format!("x.3000-{id}.localhost:7430"),
            format!("03000-{id}.localhost:7430"),
            format!("+3000-{id}.localhost:7430"),
            format!("0-{id}.localhost:7430"),
            format!("65536-{id}.localhost:7430"),
            format!("{id}.localhost:7430"),
            format!("3000-{id}:7430"),
            "3000-name.localhost:7430".to_owned(),
            "localhost:7430".to_owned(),
            String::new(),
        ] {
            assert_eq!(of_authority(&bad, 7430), None, "{bad}");
        }
    }
}
