//! `handler completions` and `handler man`.

use super::Outcome;
use crate::args::Cli;
use crate::context::Context;
use crate::exit::Failure;
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::path::Path;

/// Prints a shell's completions.
///
/// # Errors
/// None.
pub fn completions(shell: Shell, context: &Context) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "handler", &mut text);
    context.out.bytes(&text);
    Ok(0)
}

/// Writes the man pages.
///
/// # Errors
/// An unwritable folder.
pub fn pages(folder: &Path, context: &Context) -> Outcome {
    let wrap = |e| Failure::local(format!("cannot write into {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(wrap)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(wrap)?;
    context
        .out
        .note(format!("man pages are in {}", folder.display()));
    Ok(0)
}
