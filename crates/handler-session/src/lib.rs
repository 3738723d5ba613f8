//! ACP sessions that outlive their viewers: policy, live turn, event log, attach.

pub mod io;
