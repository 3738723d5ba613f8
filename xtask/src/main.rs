//! Chores of the workspace: `cargo xtask <chore>`.
//!
//! | chore | does |
//! |---|---|
//! | `guest` | builds the static guest program that the main program embeds |
//! | `arch` | checks the arrows between crates and the house rules on files |
//! | `made [--check]` | writes (or compares) `openapi/handler.json` and `docs/reference.md` |
//! | `ci` | everything CI runs, in order |
//! | `fuzz [target] [--seconds N]` | runs the coverage fuzzers of `fuzz/` |
//! | `bench` | measures against the named peers and prints ratios |

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore talks to its caller"
)]

mod arch;
mod bench;
mod ci;
mod fuzz;
mod guest;
mod licences;
mod made;

mod run;
mod testing;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["guest"] => guest::build(),
        ["arch"] => arch::check(),
        ["made"] => made::write(),
        ["made", "--check"] => made::check(),
        ["ci"] => ci::run_all(),
        ["fuzz", rest @ ..] => fuzz::run_with(rest),
        ["bench", rest @ ..] => bench::run_with(rest),
        _ => Err(anyhow::anyhow!(
            "usage: cargo xtask guest | arch | made [--check] | ci | fuzz | bench"
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
