//! Golden renders and refusals, through the public API only.

mod docs;
mod golden;
mod refusals;
mod settings;
mod settings_refused;
mod support;
