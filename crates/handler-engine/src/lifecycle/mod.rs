//! The life of a sandbox as pure data: what may follow what, and which effects bring it about.
//!
//! ```text
//!            create                      instance ended
//! absent ─────────────▶ starting ─▶ running ───────────────┐
//!                        ▲  │          │ stop, restart      ▼
//!              start     │  │ failed   └──────────────▶ stopping ─▶ stopped / failed / (starting)
//! stopped, failed ───────┘  └────────────────────────────▲ │
//!                                     delete from anywhere ┘ └─▶ gone
//!
//! running ─▶ pausing ─▶ paused ─▶ resuming ─▶ running
//!    ▲          │ failed     ▲         │ failed
//!    └── thawed ┘            └─────────┘         stop, restart, delete from running and paused
//! ```
//!
//! Invariants, checked by a property test: what may exist is always held; there is never a second
//! instance; at rest nothing runs; gone means that nothing is left.

mod state;
mod step;
#[cfg(test)]
mod tests;

pub use state::{After, Held, Phase, State};
pub use step::{Effect, Event, Refused, step};
