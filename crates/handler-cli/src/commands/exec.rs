//! `handler sandbox exec` and `follow`: a process's streams on ours, its exit code as ours.

use super::Outcome;
use super::follow::{Followed, Follower};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::Client;
use handler_types::api::{ExecRequest, StreamCommand};
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
    #[arg(long, short, visible_alias = "stdin")]
    pub interactive: bool,
    /// User inside: a name or uid[:gid]
    #[arg(long, short)]
    pub user: Option<String>,
    /// Take the arguments as one command line for a shell
    #[arg(long)]
    pub shell: bool,
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
    let (argv, shell) = match args.shell {
        true => (Vec::new(), Some(args.argv.join(" "))),
        false => (args.argv, None),
    };
    let request = ExecRequest {
        argv,
        shell,
        user: args.user,
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

/// Prints what a process has said so far, or with `follows` until it ends; its exit code is ours then.
///
/// # Errors
/// [`Failure`].
pub async fn logs(sandbox: &str, process: u32, follows: bool, context: &Context) -> Outcome {
    let client = context.client()?;
    if follows {
        return follow(&client, sandbox, process, false, context).await;
    }
    let known = client.process(sandbox, process).await?;
    let mut follower = Follower::look(&client, context, sandbox, process).await?;
    while follower.seen() < known.output_bytes {
        let message = follower.receive().await;
        if let Followed::Ended(_) = follower.take(message).await? {
            break;
        }
    }
    Ok(0)
}

pub(super) fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

async fn follow(
    client: &Client,
    sandbox: &str,
    process: u32,
    is_interactive: bool,
    context: &Context,
) -> Outcome {
    let mut follower = Follower::attach(client, context, sandbox, process, !is_interactive).await?;
    let mut input = is_interactive.then(stdin_reader);
    loop {
        tokio::select! {
            message = follower.receive() => {
                if let Followed::Ended(code) = follower.take(message).await? {
                    return Ok(code);
                }
            }
            piece = read_piece(&mut input) => match piece {
                Some(bytes) => follower.input(bytes).await?,
                None => {
                    input = None;
                    follower.command(&StreamCommand::CloseStdin).await?;
                }
            },
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.ok();
                follower.command(&StreamCommand::Signal { signal: 2 }).await?;
            }
        }
    }
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
