//! The scripted model over real sockets, in all four protocols.

mod decode;
mod picker;
mod protocols;
mod requests;
mod server;
mod tool_lists;
mod wire;
