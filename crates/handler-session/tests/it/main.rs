//! Sessions against a scripted agent whose streams survive the session's owner.

mod attach;
mod crash;
mod garbage;
mod lifecycle;
mod permissions;
mod recorded;
mod setup;
mod support;
mod turns;
