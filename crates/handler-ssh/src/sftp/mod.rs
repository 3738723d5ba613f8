//! The `sftp` subsystem: files of the sandbox through its guest. Relative paths lead from the working folder.
//!
//! A file that is written appears whole when it is closed, as the guest writes it; one that is given up half-way
//! leaves what was there before.

mod attributes;
mod names;
mod read;
mod requests;
mod tools;
mod write;

use crate::Target;
use tokio::io::DuplexStream;

/// Bytes that may wait in each direction.
const BUFFER: usize = 256 * 1024;
/// Longest packet taken, bytes.
const LONGEST_PACKET: u32 = 512 * 1024;

/// Serves files; the stream returned speaks the protocol, and dropping it ends the serving.
pub(crate) fn serve(target: &Target) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let files = requests::Files::new(target.clone());
    let config = russh_sftp::server::Config {
        max_client_packet_len: LONGEST_PACKET,
    };
    handler_base::tasks::spawn_named("sftp", async move {
        russh_sftp::server::run_with_config(theirs, files, config).await;
    });
    ours
}
