//! `handler sandbox exec` and `attach`: a process's streams on ours, its exit code as ours.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::{Client, Socket, SocketMessage};
use handler_types::api::{ExecRequest, StreamCommand, StreamEvent};
use handler_types::guest::Stream;
use std::collections::BTreeMap;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

/// `handler sandbox exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The sandbox
    pub sandbox: String,
    /// Working folder inside
    #[arg(long)]
    pub cwd: Option<String>,
    /// A variable: NAME=VALUE (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Kill it and all it started after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// Hand our standard input on
    #[arg(long, short)]
    pub interactive: bool,
    /// Print its number and leave it running
    #[arg(long, short, conflicts_with = "interactive")]
    pub detach: bool,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub argv: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(args: ExecArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let env = args
        .env
        .iter()
        .map(|pair| {
            pair.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .ok_or_else(|| Failure::Usage(format!("--env {pair}: write NAME=VALUE")))
        })
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let timeout_ms = match args.timeout {
        // Bounded to a year, so that the conversion is exact enough and cannot overflow.
        Some(secs) if secs > 0.0 && secs < 31_536_000.0 => {
            u64::try_from(std::time::Duration::from_secs_f64(secs).as_millis()).ok()
        }
        Some(_) => {
            return Err(Failure::Usage(
                "--timeout: seconds above 0, at most a year".into(),
            ));
        }
        None => None,
    };
    let request = ExecRequest {
        argv: args.argv,
        env,
        cwd: args.cwd,
        open_stdin: args.interactive,
        timeout_ms,
        ..Default::default()
    };
    if context.out.json && !args.detach {
        let result = client.exec(&args.sandbox, &request).await?;
        context.out.document(&result);
        return Ok(exit_code(result.exit.code));
    }
    let process = client.start_process(&args.sandbox, &request).await?;
    if args.detach {
        context.out.show(&process, |out, process| {
            out.line(process.process.to_string());
        });
        return Ok(0);
    }
    let code = follow(
        &client,
        &args.sandbox,
        process.process,
        args.interactive,
        context,
    )
    .await?;
    // The process was ours alone: nobody will ask for it again.
    let path = format!(
        "/v1/sandboxes/{}/processes/{}",
        args.sandbox, process.process
    );
    client
        .call_raw(http::Method::DELETE, &path, None::<&()>)
        .await
        .ok();
    Ok(code)
}

/// Follows a process that runs already.
///
/// # Errors
/// [`Failure`].
pub async fn attach(sandbox: &str, process: u32, context: &Context) -> Outcome {
    let client = context.client()?;
    follow(&client, sandbox, process, false, context).await
}

pub(super) fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

/// Opens the process's stream.
///
/// # Errors
/// [`Failure`].
pub(super) async fn open(client: &Client, sandbox: &str, process: u32) -> Result<Socket, Failure> {
    let sandbox = handler_client::transport::encode(sandbox);
    let path = format!("/v1/sandboxes/{sandbox}/processes/{process}/attach");
    Ok(client.socket(&path, "process.v1").await?)
}

async fn follow(
    client: &Client,
    sandbox: &str,
    process: u32,
    is_interactive: bool,
    context: &Context,
) -> Outcome {
    let mut socket = open(client, sandbox, process).await?;
    let mut input = if is_interactive {
        Some(stdin_reader())
    } else {
        None
    };
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            piece = read_piece(&mut input) => {
                match piece {
                    Some(bytes) => socket.send_binary(bytes.into()).await?,
                    None => {
                        input = None;
                        send(&mut socket, &StreamCommand::CloseStdin).await?;
                    }
                }
                continue;
            }
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.ok();
                send(&mut socket, &StreamCommand::Signal { signal: 2 }).await?;
                continue;
            }
        };
        if let Some(code) = show(message, context)? {
            return Ok(code);
        }
    }
}

/// Prints a message; an exit code when it was the last.
pub(super) fn show(message: SocketMessage, context: &Context) -> Result<Option<u8>, Failure> {
    match message {
        SocketMessage::Binary(bytes) => {
            let (stream, rest) = bytes.split_first().map_or((0, &[][..]), |(s, r)| (*s, r));
            if Stream::from_byte(stream) == Some(Stream::Stderr) {
                context.out.error_bytes(rest);
            } else {
                context.out.bytes(rest);
            }
            Ok(None)
        }
        SocketMessage::Text(text) => match serde_json::from_str::<StreamEvent>(&text) {
            Ok(StreamEvent::Exited { exit }) => {
                if exit.timed_out {
                    context
                        .out
                        .note("handler: the time limit ran out; everything it started was killed");
                }
                Ok(Some(exit_code(exit.code)))
            }
            Ok(StreamEvent::Closed { reason }) => Err(Failure::Failed(reason)),
            Ok(StreamEvent::Attached { .. }) | Err(_) => Ok(None),
        },
        SocketMessage::Closed { reason, .. } => {
            Err(Failure::Failed(format!("the stream ended early: {reason}")))
        }
    }
}

pub(super) async fn send(socket: &mut Socket, command: &StreamCommand) -> Result<(), Failure> {
    let text = serde_json::to_string(command).map_err(|e| Failure::Failed(e.to_string()))?;
    Ok(socket.send_text(text).await?)
}

/// Standard input, read ahead by one piece.
pub(super) fn stdin_reader() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    handler_base::tasks::spawn_named("standard input", async move {
        let mut stdin = tokio::io::stdin();
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(count) = stdin.read(&mut buffer).await {
            if count == 0 || sender.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    receiver
}

pub(super) async fn read_piece(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}
