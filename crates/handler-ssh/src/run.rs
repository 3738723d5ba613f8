//! One command or shell of a client: input in, output and end out.
//!
//! Output is acknowledged to the guest once the client's window took it: a client that does not read stalls its own
//! command only. A client that leaves ends it the way a terminal that is hung up does; what ignores that goes on, its
//! output thrown away.

use crate::input::{Input, Taken};
use crate::signals;
use handler_engine::GuestHandle;
use handler_engine::guest::{GuestCallError, ProcessStream, StreamItem};
use handler_types::guest::{Exit, ProcessSpec, Stream};
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Error};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The number of standard error in SSH.
const STDERR: u32 = 1;
/// The signal of a terminal that is hung up.
const HANGUP: i32 = 1;

/// A process with its output.
#[derive(Debug)]
pub(crate) struct Running {
    guest: GuestHandle,
    pub(crate) process: u32,
    output: ProcessStream,
}

/// Starts it.
pub(crate) async fn start(
    guest: &GuestHandle,
    spec: ProcessSpec,
) -> Result<Running, GuestCallError> {
    let process = guest.start(spec).await?.process;
    let output = guest.attach(process, 0).await?;
    Ok(Running {
        guest: guest.clone(),
        process,
        output,
    })
}

/// Where what a process says goes.
pub(crate) struct Client {
    pub(crate) channel: ChannelWriteHalf<Msg>,
    pub(crate) session: Handle,
    /// Cancelled when the client closed the channel or left.
    pub(crate) gone: CancellationToken,
}

impl Running {
    /// Follows it to its end, or until the client leaves.
    pub(crate) async fn follow(mut self, input: Arc<Input>, client: Client) {
        let told = self.speak(&input, &client).await;
        input.close();
        match told {
            Some(end) => {
                say_end(&client, end).await;
                self.guest.forget(self.process).await.ok();
            }
            None => self.hang_up().await,
        }
    }

    /// Carries input and output until the process or the client is gone.
    async fn speak(&mut self, input: &Input, client: &Client) -> Option<Ending> {
        let guest = self.guest.clone();
        let feeding = feed(&guest, self.process, input);
        tokio::pin!(feeding);
        let mut is_fed = false;
        let telling = tell(&mut self.output, &client.channel);
        tokio::pin!(telling);
        loop {
            tokio::select! {
                () = client.gone.cancelled() => return None,
                () = &mut feeding, if !is_fed => is_fed = true,
                told = &mut telling => return told.ok(),
            }
        }
    }

    /// The client is gone: the command is told so, and what it still says is thrown away.
    async fn hang_up(mut self) {
        self.guest.signal(self.process, HANGUP, true).await.ok();
        loop {
            match self.output.next().await {
                StreamItem::Chunk { offset, bytes, .. } => {
                    self.output.ack(offset + bytes.len() as u64);
                }
                StreamItem::Exited(_) => {}
                StreamItem::End { .. } => break,
                StreamItem::Lost(_) => return,
            }
        }
        self.guest.forget(self.process).await.ok();
    }
}

/// Gives the client's input to the process.
async fn feed(guest: &GuestHandle, process: u32, input: &Input) {
    let mut offset = 0;
    loop {
        match input.take().await {
            Taken::Bytes(bytes) => {
                let length = bytes.len() as u64;
                // A process that has ended or closed its input takes no more: that is its right.
                if guest.write_stdin(process, offset, bytes).await.is_err() {
                    return input.close();
                }
                offset += length;
            }
            Taken::End => {
                guest.close_stdin(process).await.ok();
                return;
            }
        }
    }
}

/// How a process ended, as far as known.
enum Ending {
    Exited(Exit),
    Lost(String),
}

/// Gives the process's output to the client, to its end.
async fn tell(
    output: &mut ProcessStream,
    channel: &ChannelWriteHalf<Msg>,
) -> Result<Ending, Error> {
    let mut exit = output.info().exit;
    loop {
        match output.next().await {
            StreamItem::Chunk {
                offset,
                stream,
                bytes,
            } => {
                let end = offset + bytes.len() as u64;
                if stream == Stream::Stderr {
                    channel.extended_data_bytes(STDERR, bytes).await?;
                } else {
                    channel.data_bytes(bytes).await?;
                }
                output.ack(end);
            }
            StreamItem::Exited(how) => exit = Some(how),
            StreamItem::End { .. } => {
                return Ok(exit.map_or_else(
                    || Ending::Lost("the command's end is unknown".to_owned()),
                    Ending::Exited,
                ));
            }
            StreamItem::Lost(reason) => return Ok(Ending::Lost(reason)),
        }
    }
}

async fn say_end(client: &Client, end: Ending) {
    let id = client.channel.id();
    match end {
        Ending::Exited(Exit {
            signal: Some(signal),
            ..
        }) => {
            let name = signals::name(signal);
            let text = format!("ended by signal {signal}");
            client
                .session
                .exit_signal_request(id, name, false, text, String::new())
                .await
                .ok();
        }
        Ending::Exited(exit) => {
            let code = u32::try_from(exit.code).unwrap_or(255);
            client.channel.exit_status(code).await.ok();
        }
        Ending::Lost(reason) => {
            let text = format!("handler: the sandbox was lost: {reason}\r\n");
            client
                .channel
                .extended_data_bytes(STDERR, text.into_bytes())
                .await
                .ok();
            client.channel.exit_status(255).await.ok();
        }
    }
    client.channel.eof().await.ok();
    client.channel.close().await.ok();
}
