//! Golden renders and refusals, through the public API only.

mod golden;
mod refusals;
mod support;
