//! ACP sessions that outlive their viewers: policy, live turn, event log, attach.

pub mod acp;
pub mod io;
pub mod live;
pub mod policy;
