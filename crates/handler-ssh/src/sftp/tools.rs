//! What the guest has no call for and a program inside does: links and times.

use handler_engine::GuestHandle;
use handler_engine::guest::{GuestCallError, StreamItem};
use handler_types::guest::ProcessSpec;

/// Longest run, milliseconds.
const WITHIN_MS: u64 = 30_000;
/// Most of what it says that is passed on, bytes.
const LONGEST_TEXT: usize = 500;

/// Runs a program to its end; a failure comes with what it said.
pub(crate) async fn run(guest: &GuestHandle, argv: &[&str]) -> Result<(), GuestCallError> {
    let spec = ProcessSpec {
        key: handler_base::random::hex(12),
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        timeout_ms: Some(WITHIN_MS),
        tag: "sftp".to_owned(),
        ..ProcessSpec::default()
    };
    let process = guest.start(spec).await?.process;
    let mut output = guest.attach(process, 0).await?;
    let mut said = Vec::new();
    let mut exit = output.info().exit;
    loop {
        match output.next().await {
            StreamItem::Chunk { offset, bytes, .. } => {
                let room = LONGEST_TEXT.saturating_sub(said.len());
                said.extend_from_slice(&bytes[..bytes.len().min(room)]);
                output.ack(offset + bytes.len() as u64);
            }
            StreamItem::Exited(how) => exit = Some(how),
            StreamItem::End { .. } => break,
            StreamItem::Lost(reason) => return Err(GuestCallError::Invalid(reason)),
        }
    }
    guest.forget(process).await.ok();
    match exit {
        Some(exit) if exit.code == 0 => Ok(()),
        _ => {
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            Err(GuestCallError::Invalid(said))
        }
    }
}
