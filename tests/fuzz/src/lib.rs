//! Fuzz targets: for each a function over any bytes that panics where something does not hold. The same functions are
//! run by the coverage fuzzers in `fuzz/` (`cargo xtask fuzz`) and, with the corpus and changes of it, by this crate's
//! own test on every run of CI.
//!
//! No target touches the file system outside a temporary folder of its own, nor a network.

mod archives;
mod frames;
pub mod mutate;
mod terminal;

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: of its folder in `corpus/`, and of its program in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// Runs it; panics where something does not hold.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("allow_entry", handler_egress::fuzzing::allow_entry),
    target("client_hello", handler_egress::fuzzing::client_hello),
    target("codings", handler_egress::fuzzing::codings),
    target("guest_frame", frames::guest_frame),
    target("http1", handler_egress::fuzzing::http1),
    target("http2", handler_egress::fuzzing::http2),
    target("scanner", handler_egress::fuzzing::scanner),
    target("settings", handler_egress::fuzzing::settings),
    target("tar", archives::tar),
    target("target", handler_egress::fuzzing::target),
    target("terminal", terminal::terminal),
    target("terminal_snapshot", terminal::terminal_snapshot),
    target("websocket", handler_egress::fuzzing::websocket),
    target("zip", archives::zip),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Runs a target by its name.
///
/// # Panics
/// When there is no such target, and where something does not hold.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    let Some(target) = found else {
        panic!("no target `{name}`");
    };
    (target.run)(data);
}

/// Takes a number from the front, and the rest in pieces of as many bytes, at least one.
fn cut(data: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let (step, rest) = data.split_first().unwrap_or((&0, &[]));
    (rest, rest.chunks(usize::from(*step) + 1))
}
