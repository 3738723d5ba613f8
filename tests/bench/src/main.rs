//! Measures what the product promises (`cargo xtask bench`): each figure as a ratio against a named
//! peer that does the same thing in the same run on the same machine.
//!
//! Invariant: what is compared is measured in turns, one of each, so that a busy moment of the machine
//! falls on both.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to its caller"
)]

mod args;
mod context;
mod figures;
mod image;
mod json;
mod line;
mod machine;
mod measure;
mod memory;
mod origin;
mod peers;
mod processor;
mod relay;
mod rows;
mod table;

use args::Args;
use context::Context;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["relay", listen, to] => relay::run(listen, to).map(|()| true),
        _ => bench(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures; says whether every row could be.
fn bench(arguments: &[String]) -> anyhow::Result<bool> {
    let args = Args::parse(arguments)?;
    if args.list {
        for row in rows::ALL {
            println!("{:<16} {}", row.name, row.what);
        }
        return Ok(true);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let context = runtime.block_on(Context::new(&args))?;
    let machine = machine::facts();
    println!("{}", machine.line());
    let report = runtime.block_on(rows::measure(&args, &context));
    println!("\n{}", table::render(&report.lines, args.quick));
    for (row, why) in &report.failures {
        println!("FAILED {row}: {why}");
    }
    let document = json::document(&machine, &context, &args, &report);
    json::write(&args.json, &document)?;
    println!("written to {}", args.json.display());
    Ok(report.failures.is_empty())
}
