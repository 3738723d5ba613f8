//! Sessions: real agent programs in real sandboxes, driven by the scripted model through the real daemon.

mod alone;
mod asked;
mod by_hand;
mod crash;
mod day;
mod ends;
mod folder;
mod log;
mod long;
mod lost;
mod refused;
mod resumed;
pub(crate) mod stage;
mod texts;
mod together;
pub(crate) mod typed;
pub(crate) mod viewer;
mod watched;

pub(crate) use stage::{LONG, Stage};
