//! What every command is given: the client, the printer, and where things are on this machine.

use crate::exit::Failure;
use crate::out::Out;
use handler_base::http::Endpoint;
use handler_client::Client;
use std::path::PathBuf;

/// Where the daemon and its files are, resolved by the program.
#[derive(Debug, Clone)]
pub struct Context {
    /// The printer.
    pub out: Out,
    /// The daemon's Unix socket, or an address given by `HANDLER_URL`.
    pub endpoint: Endpoint,
    /// File with the token.
    pub token_file: PathBuf,
    /// The daemon's log.
    pub daemon_log: PathBuf,
    /// The filter's Unix socket.
    pub filter_socket: PathBuf,
    /// Folders that are Handler's alone: settings, state, data, caches, sockets.
    pub own_folders: Vec<PathBuf>,
    /// This program.
    pub program: PathBuf,
}

impl Context {
    /// A client of the daemon.
    ///
    /// # Errors
    /// When the token cannot be read because of its rights; a missing one shows as an unreachable daemon.
    pub fn client(&self) -> Result<Client, Failure> {
        let token = match std::fs::read_to_string(&self.token_file) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::local(
                    format!("cannot read {}", self.token_file.display()),
                    error,
                ));
            }
        };
        Ok(Client::new(self.endpoint.clone(), token))
    }
}
