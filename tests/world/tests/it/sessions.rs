//! Sessions: real agent programs in real sandboxes, driven by the scripted model through the real daemon.

mod alone;
mod asked;
mod by_hand;
mod crash;
mod ends;
mod log;
mod lost;
mod refused;
mod resumed;
mod stage;
mod together;
pub(crate) mod typed;
mod viewer;
mod watched;

pub(crate) use stage::Stage;
