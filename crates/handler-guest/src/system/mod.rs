//! What goes on in the sandbox as a whole: every process, listening sockets, resources. All from `/proc`,
//! bounded, with whatever cannot be read left out.

mod ports;
mod resources;
pub(crate) mod stats;
mod table;

pub(crate) use ports::ports;
pub(crate) use table::table;
