//! The agent's process as two numbered streams for its session.

use super::AGENT_KEY;
use crate::app::sandboxes::guest_error;
use crate::http::problem::ApiResult;
use async_trait::async_trait;
use bytes::Bytes;
use handler_engine::guest::{GuestHandle, ProcessStream, StreamItem};
use handler_session::io::{AgentGone, AgentIo, AgentOutput};
use handler_types::guest::{ProcessInfo, ProcessSpec, Stream};

/// The agent's process, seen through the guest.
pub struct GuestAgent {
    guest: GuestHandle,
    process: ProcessInfo,
    stream: ProcessStream,
    exit: Option<i32>,
}

impl std::fmt::Debug for GuestAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestAgent")
            .field("process", &self.process.process)
            .finish_non_exhaustive()
    }
}

impl GuestAgent {
    /// Starts the agent, or finds it when it runs already.
    ///
    /// # Errors
    /// What the guest refuses, e.g. a program that does not exist.
    pub async fn start(guest: GuestHandle, spec: ProcessSpec) -> ApiResult<Self> {
        let process = guest.start(spec).await.map_err(guest_error)?;
        Self::attach(guest, process).await
    }

    /// Finds the agent that an earlier daemon started; none: it never was, or the sandbox forgot it.
    ///
    /// # Errors
    /// A guest that does not answer.
    pub async fn find(guest: GuestHandle) -> ApiResult<Option<Self>> {
        let all = guest.processes().await.map_err(guest_error)?;
        match all.into_iter().find(|process| process.key == AGENT_KEY) {
            Some(process) => Self::attach(guest, process).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where its input goes: for who writes it while another reads its output.
    #[must_use]
    pub fn input(&self) -> (GuestHandle, u32, u64) {
        let process = &self.process;
        (self.guest.clone(), process.process, process.received)
    }

    /// What the process does next. Cancel safe.
    pub async fn item(&mut self) -> StreamItem {
        self.stream.next().await
    }

    /// Lets the guest forget output below `end`.
    pub fn ack_to(&mut self, end: u64) {
        self.stream.ack(end);
    }

    async fn attach(guest: GuestHandle, process: ProcessInfo) -> ApiResult<Self> {
        let stream = guest
            .attach(process.process, process.acked)
            .await
            .map_err(guest_error)?;
        let exit = process.exit.map(|exit| exit.code);
        Ok(Self {
            guest,
            process,
            stream,
            exit,
        })
    }
}

#[async_trait]
impl AgentIo for GuestAgent {
    async fn next(&mut self) -> AgentOutput {
        loop {
            match self.stream.next().await {
                StreamItem::Chunk {
                    offset,
                    stream,
                    bytes,
                } => {
                    let end = offset + bytes.len() as u64;
                    return match stream {
                        Stream::Stderr => AgentOutput::Stderr { end, bytes },
                        Stream::Stdout | Stream::Pty => AgentOutput::Stdout { end, bytes },
                    };
                }
                StreamItem::Exited(exit) => self.exit = Some(exit.code),
                StreamItem::End { .. } => {
                    return AgentOutput::Exited {
                        code: self.exit.unwrap_or(-1),
                    };
                }
                StreamItem::Lost(reason) => return AgentOutput::Lost { reason },
            }
        }
    }

    fn ack(&mut self, end: u64) {
        self.stream.ack(end);
    }

    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), AgentGone> {
        self.guest
            .write_stdin(self.process.process, offset, bytes)
            .await
            .map_err(|error| AgentGone(error.to_string()))
    }

    fn received(&self) -> u64 {
        self.process.received
    }
}
