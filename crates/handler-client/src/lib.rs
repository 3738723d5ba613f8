//! Typed HTTP and WebSocket client of the control API, over the daemon's Unix socket or loopback TCP.

pub mod audit;
mod builds;
mod calls;
pub mod error;
pub mod events;
pub mod logs;
mod session_folder;
mod session_texts;
pub mod transport;
pub mod tunnel;
pub mod ws;

pub use builds::BuildFrames;
pub use error::ClientError;
pub use transport::Client;
pub use tunnel::Tunnel;
pub use ws::{Socket, SocketMessage};
