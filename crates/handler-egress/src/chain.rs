//! Reaching the outside through a proxy the machine has to use: HTTP `CONNECT` or SOCKS 5, with the credentials of
//! its URL. Everything goes through tunnels, and names are resolved by the proxy.

use crate::target::{Target, TargetHost};
use base64::Engine as _;
use std::fmt;
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_socks::tcp::Socks5Stream;
use zeroize::Zeroizing;

const LONGEST_ANSWER: usize = 16 * 1024;

/// A proxy between this machine and the outside.
#[derive(Clone)]
pub struct UpstreamProxy {
    host: String,
    port: u16,
    speaks: Speaks,
    except: Vec<String>,
}

/// What the proxy speaks, and as whom we come.
#[derive(Clone)]
enum Speaks {
    /// HTTP, with Basic credentials in base64.
    Http(Option<Zeroizing<String>>),
    /// SOCKS 5 (RFC 1928), with a name and a password (RFC 1929).
    Socks(Option<(Zeroizing<String>, Zeroizing<String>)>),
}

/// Why a proxy of the environment cannot be used. Never shows its credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamProxyError {
    /// Neither an `http://` nor a `socks5://` URL.
    #[error("the upstream proxy must be an http:// or socks5:// URL with a host")]
    Scheme,
    /// The host or port cannot be read.
    #[error("the host or port of the upstream proxy cannot be read")]
    Host,
    /// Name or password are no text, empty, or longer than SOCKS allows.
    #[error("the name and the password of a SOCKS proxy must be texts of 1 to 255 bytes")]
    Credentials,
}

/// Why the proxy gave no tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    /// It cannot be reached.
    #[error("the upstream proxy cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// It refused.
    #[error("the upstream proxy answered {0}")]
    Refused(u16),
    /// Its answer is not HTTP.
    #[error("the upstream proxy gave an answer that cannot be read")]
    Malformed,
    /// It speaks SOCKS and gave no tunnel.
    #[error("the upstream proxy gave no tunnel: {0}")]
    Socks(#[from] tokio_socks::Error),
}

impl UpstreamProxy {
    /// Reads `http://[user:password@]host[:port]` (port 80 unless written) or the same with `socks5://` or
    /// `socks5h://` (1080), and a `NO_PROXY` list.
    ///
    /// # Errors
    /// When the URL has another scheme, no host, a bad port, or credentials that the proxy cannot be told.
    pub fn new(url: &str, no_proxy: &str) -> Result<Self, UpstreamProxyError> {
        let (scheme, rest) = url.split_once("://").ok_or(UpstreamProxyError::Scheme)?;
        let default_port = match scheme {
            "http" => 80,
            "socks5" | "socks5h" => 1080,
            _ => return Err(UpstreamProxyError::Scheme),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(UpstreamProxyError::Host)?,
            None => match place.find(':') {
                Some(colon) => place.split_at(colon),
                None => (place, ""),
            },
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| UpstreamProxyError::Host)?,
            None if port.is_empty() => default_port,
            None => return Err(UpstreamProxyError::Host),
        };
        if host.is_empty() || !host.is_ascii() || port == 0 {
            return Err(UpstreamProxyError::Host);
        }
        let speaks = match scheme {
            "http" => Speaks::Http(user.map(basic)),
            _ => Speaks::Socks(user.map(name_and_password).transpose()?),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            speaks,
            except: split_list(no_proxy),
        })
    }

    /// The proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` names, in this order, each also in lower case.
    ///
    /// # Errors
    /// As [`UpstreamProxy::new`].
    pub fn from_env(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, UpstreamProxyError> {
        let first = |names: &[&str]| {
            names
                .iter()
                .filter_map(|name| variable(name))
                .find(|value| !value.is_empty())
        };
        let url = first(&[
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ]);
        let except = first(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        url.map(|url| Self::new(&url, &except)).transpose()
    }

    /// Whether this destination is reached through the proxy.
    pub(crate) fn applies_to(&self, target: &Target) -> bool {
        let host = target.host_text();
        let port = format!(":{}", target.port);
        !self.except.iter().any(|entry| {
            let entry = entry.strip_suffix(port.as_str()).unwrap_or(entry);
            entry == "*"
                || entry == host
                || (matches!(target.host, TargetHost::Name(_))
                    && host
                        .strip_suffix(entry.trim_start_matches("*.").trim_start_matches('.'))
                        .is_some_and(|before| before.ends_with('.')))
        })
    }

    /// A tunnel through the proxy. The proxy's own address is the owner's choice and not checked.
    pub(crate) async fn connect(&self, target: &Target) -> Result<TcpStream, ChainError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        match &self.speaks {
            Speaks::Http(authorization) => by_http(stream, authorization.as_ref(), target).await,
            Speaks::Socks(credentials) => by_socks(stream, credentials.as_ref(), target).await,
        }
    }
}

async fn by_http(
    mut stream: TcpStream,
    authorization: Option<&Zeroizing<String>>,
    target: &Target,
) -> Result<TcpStream, ChainError> {
    let mut head = Zeroizing::new(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"));
    if let Some(value) = authorization {
        head.push_str("Proxy-Authorization: Basic ");
        head.push_str(value);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    match read_status(&mut stream).await? {
        200..=299 => Ok(stream),
        status => Err(ChainError::Refused(status)),
    }
}

async fn by_socks(
    stream: TcpStream,
    credentials: Option<&(Zeroizing<String>, Zeroizing<String>)>,
    target: &Target,
) -> Result<TcpStream, ChainError> {
    let host = target.host_text();
    let to = (host.as_str(), target.port);
    let tunnel = match credentials {
        Some((name, password)) => {
            Socks5Stream::connect_with_password_and_socket(stream, to, name, password).await?
        }
        None => Socks5Stream::connect_with_socket(stream, to).await?,
    };
    Ok(tunnel.into_inner())
}

/// Reads the head of the answer and nothing behind it: what follows belongs to the tunnel.
async fn read_status(stream: &mut TcpStream) -> Result<u16, ChainError> {
    let mut head = Vec::with_capacity(256);
    loop {
        head.push(stream.read_u8().await?);
        if head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n") {
            break;
        }
        if head.len() >= LONGEST_ANSWER {
            return Err(ChainError::Malformed);
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(&head) {
        Ok(httparse::Status::Complete(_)) => response.code.ok_or(ChainError::Malformed),
        _ => Err(ChainError::Malformed),
    }
}

fn basic(user: &str) -> Zeroizing<String> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let mut plain = Zeroizing::new(percent_decode(name));
    plain.push(b':');
    plain.extend_from_slice(&Zeroizing::new(percent_decode(password)));
    Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(plain.as_slice()))
}

fn name_and_password(
    user: &str,
) -> Result<(Zeroizing<String>, Zeroizing<String>), UpstreamProxyError> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let read = |text| {
        let text = String::from_utf8(percent_decode(text)).ok()?;
        (1..=255)
            .contains(&text.len())
            .then(|| Zeroizing::new(text))
    };
    read(name)
        .zip(read(password))
        .ok_or(UpstreamProxyError::Credentials)
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let pair = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.map(|pair| u8::from_str_radix(pair, 16)) {
            Some(Ok(value)) if *byte == b'%' => {
                out.push(value);
                rest = &after[2..];
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

fn split_list(list: &str) -> Vec<String> {
    list.split([',', ' '])
        .map(|entry| entry.trim().to_ascii_lowercase())
        .filter(|entry| !entry.is_empty())
        .collect()
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamProxy")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_url_is_read_and_its_password_never_shown() {
        let proxy = UpstreamProxy::new("http://me:p%40ss@proxy.corp:3128/", "").expect("url");
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy.corp", 3128));
        let Speaks::Http(Some(given)) = &proxy.speaks else {
            panic!("no credentials");
        };
        assert_eq!(given.as_str(), "bWU6cEBzcw==");
        assert!(!format!("{proxy:?}").contains("bWU6"));
        let bare = UpstreamProxy::new("http://[::1]", "").expect("url");
        assert_eq!((bare.host.as_str(), bare.port), ("::1", 80));
        let socks = UpstreamProxy::new("socks5h://me:p%40ss@proxy.corp", "").expect("url");
        assert_eq!((socks.host.as_str(), socks.port), ("proxy.corp", 1080));
        let Speaks::Socks(Some((name, password))) = &socks.speaks else {
            panic!("no credentials");
        };
        assert_eq!((name.as_str(), password.as_str()), ("me", "p@ss"));
        let nameless = UpstreamProxy::new("socks5://:secret@a", "").map(|_| ());
        assert_eq!(nameless, Err(UpstreamProxyError::Credentials));
        for url in [
            "https://a:1",
            "socks4://a",
            "http://",
            "http://a:x",
            "http://a:0",
        ] {
            assert!(UpstreamProxy::new(url, "").is_err(), "{url}");
        }
    }

    #[test]
    fn the_environment_names_the_proxy_in_a_fixed_order() {
        let read = |set: &'static [(&str, &str)]| {
            let find = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            UpstreamProxy::from_env(find).map(|proxy| proxy.map(|proxy| proxy.host))
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(
            read(&[("HTTPS_PROXY", ""), ("http_proxy", "http://b")]),
            Ok(Some("b".into()))
        );
        assert_eq!(
            read(&[("HTTP_PROXY", "http://b"), ("https_proxy", "http://a")]),
            Ok(Some("a".into()))
        );
        assert_eq!(
            read(&[("ALL_PROXY", "socks5://c"), ("http_proxy", "")]),
            Ok(Some("c".into()))
        );
        assert_eq!(
            read(&[("HTTPS_PROXY", "https://a")]),
            Err(UpstreamProxyError::Scheme)
        );
    }

    #[test]
    fn destinations_of_the_exception_list_are_reached_directly() {
        let proxy =
            UpstreamProxy::new("http://p:1", "a.com, .b.org,10.0.0.1,c.net:8080").expect("url");
        let applies = |text: &str| proxy.applies_to(&Target::parse(text, None).expect(text));
        for text in [
            "a.com:443",
            "x.a.com:443",
            "x.b.org:1",
            "10.0.0.1:80",
            "c.net:8080",
        ] {
            assert!(!applies(text), "{text}");
        }
        for text in [
            "aa.com:443",
            "bb.org:1",
            "10.0.0.11:80",
            "c.net:80",
            "110.0.0.1:80",
        ] {
            assert!(applies(text), "{text}");
        }
    }
}
