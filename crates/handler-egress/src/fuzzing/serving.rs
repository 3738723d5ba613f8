//! Any bytes on a connection of HTTP/1.1, and on one of HTTP/2 in an intercepted tunnel, of a sandbox that may reach
//! nothing: served as every connection is, until the client has said all.

use super::{cut, own, rules};
use crate::accept::{Inside, LONGEST_HEAD, Session, serve};
use crate::events::Events;
use crate::hosts::Named;
use crate::keep::Keep;
use crate::limits::Limits;
use crate::login::Desk;
use crate::opening::{Opened, Opening};
use crate::resolve::Resolver;
use crate::sandbox::{Sandbox, Shared};
use crate::settings::Rules;
use crate::streams;
use crate::trust::Trust;
use crate::upstream::Scheme;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// A connection that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(20);

fn sandbox() -> Arc<Sandbox> {
    static ONE: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let make = || {
        let mut limits = Limits::default();
        limits.share.refusals_per_second = u32::MAX;
        let shared = Shared {
            events: Events::new(),
            resolver: Resolver::default(),
            proxy: None,
            limits,
            trust: Trust::new(None),
            logins: Desk::new(),
            // Of a sandbox with such a name nothing is kept.
            keep: Keep::beside(Path::new("/")),
        };
        let rules = Arc::into_inner(rules()).unwrap_or_else(|| Rules::nothing(1));
        Sandbox::new("no file name", Arc::new(shared), rules).expect("a sandbox")
    };
    ONE.get_or_init(make).clone()
}

/// Says `bytes` to what is served on the other end, and hears what it answers; then all its shares are whole.
fn said<F>(bytes: &[u8], serving: impl FnOnce(Arc<Session>, DuplexStream) -> F) -> Vec<u8>
where
    F: Future<Output = ()> + Send + 'static,
{
    let sandbox = sandbox();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let heard = runtime.block_on(async {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let part = sandbox.shares.connections.clone().try_acquire_owned();
        let session = Session::outer(sandbox.clone(), part.expect("a connection"));
        let served = tokio::spawn(serving(session, server));
        let (mut read, mut write) = tokio::io::split(client);
        let mut heard = Vec::new();
        let saying = async {
            // It may have hung up.
            write.write_all(bytes).await.ok();
            write.shutdown().await.ok();
        };
        let talk = async {
            tokio::join!(saying, read.read_to_end(&mut heard)).1.ok();
            served.await
        };
        let ended = tokio::time::timeout(HANGS, talk).await;
        ended.expect("the connection ends").expect("no panic");
        heard
    });
    drop(runtime);
    assert!(sandbox.shares.are_whole(), "a part of a share is lost");
    heard
}

/// Nothing is let through, and where anything is answered the answer is a refusal. As the first bytes of a blind
/// tunnel they mean the same however they are cut.
pub fn http1(data: &[u8]) {
    let (bytes, pieces) = cut(data.get(..LONGEST_HEAD - 1024).unwrap_or(data));
    let opened = opened([bytes].into_iter());
    assert_eq!(self::opened(pieces), opened);
    if let Opened::Http(hosts) = &opened {
        assert!(hosts.iter().all(|host| !host.contains(['\r', '\n', '\0'])));
    }
    let heard = said(bytes, serve);
    assert!(heard.is_empty() || heard.starts_with(b"HTTP/1."));
    for good in [&b"HTTP/1.1 2"[..], b"HTTP/1.0 2", b"HTTP/1.1 101"] {
        assert_eq!(memchr::memmem::find(&heard, good), None);
    }
}

fn opened<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Opened {
    let mut opening = Opening::default();
    for piece in pieces {
        if let Some(opened) = opening.push(piece) {
            return opened;
        }
    }
    opening.end()
}

/// The connection ends when the client has said all, whatever that was; with the preface in front if the first byte
/// is odd.
pub fn http2(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else {
        return;
    };
    let mut bytes = Vec::new();
    if how % 2 == 1 {
        bytes.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    bytes.extend_from_slice(rest);
    said(&bytes, |session, io| async move {
        let inside = Inside {
            target: own(),
            scheme: Scheme::Tls,
            named: Named::Exactly,
        };
        let part = session.sandbox.shares.streaming.try_take(1);
        let inner = session.inner_shared(inside, None, part.expect("a connection of HTTP/2"));
        streams::serve(inner, io).await;
    });
}
