//! `handler sandbox ports`, `forward`, `open` and `connect`: what listens inside, brought here.

use super::Outcome;
use super::exec::stdin_reader;
use crate::context::Context;
use crate::exit::Failure;
use crate::out::Out;
use clap::Args;
use handler_client::Client;
use handler_types::port::{ForwardRequest, OpenRequest, PortView};
use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::io::StreamReader;

/// `handler sandbox forward`.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// The sandbox
    pub sandbox: String,
    /// Our port and, if it differs, the one inside; 0 is any free one of ours
    #[arg(required = true, value_name = "[ADDRESS:]PORT[:INSIDE]")]
    pub ports: Vec<Wish>,
    /// Let the daemon forward them, also after its restarts, and return at once
    #[arg(long)]
    pub keep: bool,
    /// Take forwards away that the daemon keeps (each named by its port inside)
    #[arg(long, conflicts_with = "keep")]
    pub remove: bool,
}

/// One wished forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    bind: Option<IpAddr>,
    here: u16,
    inside: u16,
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "write [ADDRESS:]PORT[:INSIDE], such as 8080, 8080:3000 or 0:3000".to_owned();
        let (bind, ports) = match text.strip_prefix('[') {
            Some(rest) => rest
                .split_once("]:")
                .map(|(address, ports)| (Some(address), ports))
                .ok_or_else(wrong)?,
            None => match text.split_once(':') {
                Some((first, rest)) if first.parse::<u16>().is_err() => (Some(first), rest),
                _ => (None, text),
            },
        };
        let bind = match bind {
            Some("localhost") => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(address) => Some(address.parse().map_err(|_| wrong())?),
            None => None,
        };
        let (here, inside) = ports.split_once(':').unwrap_or((ports, ports));
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let (here, inside) = (number(here)?, number(inside)?);
        if inside == 0 {
            return Err("the port inside is from 1 to 65535".to_owned());
        }
        Ok(Self { bind, here, inside })
    }
}

/// `handler sandbox open`.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// The sandbox
    pub sandbox: String,
    /// The port inside
    pub port: u16,
    /// Where to go first
    #[arg(long)]
    pub path: Option<String>,
    /// Print the address only
    #[arg(long)]
    pub no_browser: bool,
}

/// Lists the ports.
///
/// # Errors
/// [`Failure`].
pub async fn list(sandbox: &str, context: &Context) -> Outcome {
    let ports = context.client()?.ports(sandbox).await?;
    context.out.show(&ports, |out, ports| table(out, ports));
    Ok(0)
}

fn table(out: &Out, ports: &[PortView]) {
    let rows: Vec<Vec<String>> = ports
        .iter()
        .map(|port| {
            let state = if port.open { "open" } else { "closed" };
            let program = port.program.clone().unwrap_or_default();
            let forward = port.forward.as_ref().map(|forward| {
                let at = format!("{}:{}", forward.bind, forward.host_port);
                match &forward.error {
                    Some(error) => format!("{at} ({error})"),
                    None => at,
                }
            });
            vec![
                port.port.to_string(),
                state.to_owned(),
                program,
                forward.unwrap_or_default(),
                port.url.clone(),
            ]
        })
        .collect();
    out.table(
        &["PORT", "STATE", "PROGRAM", "FORWARDED FROM", "PREVIEW"],
        &rows,
    );
}

/// Forwards ports, here until interrupted or in the daemon.
///
/// # Errors
/// [`Failure`].
pub async fn forward(args: ForwardArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    if args.remove {
        for wish in &args.ports {
            client.unforward_port(&args.sandbox, wish.inside).await?;
        }
        return Ok(0);
    }
    if args.keep {
        let mut made = Vec::new();
        for wish in &args.ports {
            let request = ForwardRequest {
                port: wish.inside,
                host_port: Some(wish.here),
                bind: wish.bind.map(|address| address.to_string()),
            };
            made.push(client.forward_port(&args.sandbox, &request).await?);
        }
        context.out.show(&made, |out, made| {
            for port in made {
                if let Some(forward) = &port.forward {
                    let at = format!("{}:{}", forward.bind, forward.host_port);
                    out.line(format!("{at} -> {}", port.port));
                }
            }
        });
        return Ok(0);
    }
    here(&client, &args, context).await
}

/// Forwards in this process.
async fn here(client: &Client, args: &ForwardArgs, context: &Context) -> Outcome {
    // Found first, so that a mistyped name is told at once.
    let sandbox = client.sandbox(&args.sandbox).await?.id.to_string();
    let mut listeners = Vec::new();
    for wish in &args.ports {
        let address = wish.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let address = SocketAddr::new(address, wish.here);
        let failed = |error| Failure::local(format!("cannot listen on {address}"), error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        context.out.line(format!("{at} -> {}", wish.inside));
        listeners.push((listener, wish.inside));
    }
    let serving = listeners.into_iter().map(|(listener, port)| {
        let (client, sandbox, out) = (client.clone(), sandbox.clone(), context.out.clone());
        serve(listener, client, sandbox, port, out)
    });
    tokio::select! {
        _ = futures::future::join_all(serving) => Ok(1),
        _ = tokio::signal::ctrl_c() => Ok(0),
    }
}

async fn serve(listener: TcpListener, client: Client, sandbox: String, port: u16, out: Out) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely; it passes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (client, sandbox, out) = (client.clone(), sandbox.clone(), out.clone());
        handler_base::tasks::spawn_named("connection", async move {
            if let Err(failure) = carry(&client, &sandbox, port, stream).await {
                out.note(format!("port {port}: {failure}"));
            }
        });
    }
}

async fn carry(
    client: &Client,
    sandbox: &str,
    port: u16,
    stream: TcpStream,
) -> Result<(), Failure> {
    stream.set_nodelay(true).ok();
    let connected = client.connect_port(sandbox, port).await;
    let tunnel = connected.inspect_err(|_| {
        // A client is told by a reset, as by a port that is closed.
        stream.set_zero_linger().ok();
    })?;
    let (reader, writer) = stream.into_split();
    Ok(tunnel.carry(reader, writer).await?)
}

/// Connects our input and output to a port.
///
/// # Errors
/// [`Failure`].
pub async fn connect(sandbox: &str, port: u16, context: &Context) -> Outcome {
    let tunnel = context.client()?.connect_port(sandbox, port).await?;
    tunnel.carry(input(), tokio::io::stdout()).await?;
    Ok(0)
}

/// Our standard input as a stream that does not keep the program from ending.
pub(super) fn input() -> impl tokio::io::AsyncRead + Unpin {
    let pieces = futures::stream::unfold(stdin_reader(), |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, io::Error>(bytes::Bytes::from(piece)), pieces))
    });
    StreamReader::new(Box::pin(pieces))
}

/// Prints the address of a preview, and opens it where that is possible.
///
/// # Errors
/// [`Failure`].
pub async fn open(args: OpenArgs, context: &Context) -> Outcome {
    let request = OpenRequest { path: args.path };
    let client = context.client()?;
    let opened = client.open_port(&args.sandbox, args.port, &request).await?;
    context
        .out
        .show(&opened, |out, opened| out.line(&opened.url));
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let wants = !args.no_browser && !context.out.json && io::stdout().is_terminal();
    if wants && has_screen {
        browse(&opened.url, context).await;
    }
    Ok(0)
}

/// Shows the address to a browser through a file of ours: in its arguments, others on this machine could read the
/// ticket.
async fn browse(url: &str, context: &Context) {
    let page = format!(
        "<!doctype html><meta name=referrer content=no-referrer><meta http-equiv=refresh content=\"0;url={url}\">"
    );
    let name = format!("handler-open-{}.html", handler_base::random::hex(8));
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(name);
    if handler_base::fs::write_atomic(&file, page.as_bytes(), 0o600).is_err() {
        return;
    }
    let browser = std::env::var("BROWSER").unwrap_or_else(|_| "xdg-open".to_owned());
    let started = tokio::process::Command::new(browser)
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // Long enough for a browser to read it.
        Ok(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        Err(_) => context
            .out
            .note("no browser found; open the address yourself"),
    }
    std::fs::remove_file(&file).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_as_they_are_written_elsewhere() {
        let wish = |text: &str| {
            let wish: Wish = text.parse().expect(text);
            let bind = wish.bind.map(|address| address.to_string());
            (bind, wish.here, wish.inside)
        };
        assert_eq!(wish("8080"), (None, 8080, 8080));
        assert_eq!(wish("8080:3000"), (None, 8080, 3000));
        assert_eq!(wish("0:3000"), (None, 0, 3000));
        assert_eq!(wish("0.0.0.0:80"), (Some("0.0.0.0".into()), 80, 80));
        assert_eq!(wish("127.0.0.1:1:2"), (Some("127.0.0.1".into()), 1, 2));
        assert_eq!(wish("localhost:1"), (Some("127.0.0.1".into()), 1, 1));
        assert_eq!(wish("[::1]:1:2"), (Some("::1".into()), 1, 2));
        for bad in [
            "", "0", "1:0", "x", "1:2:3:4", "65536", "::1:1", "[::1]", "a:1",
        ] {
            assert!(bad.parse::<Wish>().is_err(), "{bad}");
        }
    }
}
