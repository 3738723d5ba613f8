//! The rows: what can be asked for, and how each is measured.

mod containers;
mod daemon;
mod driver;
mod egress;
mod exec;
mod filter;
mod flood;
mod list;
mod log;
mod memory;
mod proxies;
mod sandbox;
mod start;
mod terminal;
mod version;

use crate::args::Args;
use crate::context::Context;
use crate::line::Line;
use std::time::Instant;

/// A row.
#[derive(Debug)]
pub(crate) struct Row {
    /// What the command line calls it.
    pub(crate) name: &'static str,
    /// What it measures.
    pub(crate) what: &'static str,
}

/// All rows, cheap ones first.
pub(crate) const ALL: [Row; 14] = [
    Row {
        name: "version",
        what: "`handler --version`",
    },
    Row {
        name: "log",
        what: "event log: append, replay, seek",
    },
    Row {
        name: "daemon",
        what: "daemon: ready time, resident memory when idle",
    },
    Row {
        name: "driver",
        what: "raw driver start: launcher spawned to guest's greeting",
    },
    Row {
        name: "start",
        what: "native create to first command's output, against bwrap, podman, docker",
    },
    Row {
        name: "filter",
        what: "cost of the filter at start",
    },
    Row {
        name: "exec",
        what: "command in a running sandbox, against podman exec and docker exec",
    },
    Row {
        name: "containers",
        what: "containers: create, command, removal, against podman and docker themselves",
    },
    Row {
        name: "terminal",
        what: "terminal: key to echo",
    },
    Row {
        name: "flood",
        what: "terminal flood with a stalled viewer: how the daemon grows",
    },
    Row {
        name: "egress",
        what: "blind tunnel through the filter, against a plain relay",
    },
    Row {
        name: "proxies",
        what: "the filter against tinyproxy (tunnels) and mitmproxy (a secret put in)",
    },
    Row {
        name: "memory",
        what: "resident memory of daemon and filter with many sandboxes",
    },
    Row {
        name: "list",
        what: "first page of 10 000 sandboxes and sessions",
    },
];

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// All lines, in the order of the rows.
    pub(crate) lines: Vec<Line>,
    /// Rows that could not be measured, with why.
    pub(crate) failures: Vec<(&'static str, String)>,
}

/// Measures every row that is wanted; one that fails does not keep the others from it.
pub(crate) async fn measure(args: &Args, context: &Context) -> Report {
    let mut report = Report::default();
    for row in ALL.iter().filter(|row| args.wants(row.name)) {
        let began = Instant::now();
        match measure_one(row.name, context).await {
            Ok(lines) => report.lines.extend(lines),
            Err(error) => report.failures.push((row.name, format!("{error:#}"))),
        }
        eprintln!("{}: {:.1} s", row.name, began.elapsed().as_secs_f64());
    }
    report
}

async fn measure_one(row: &str, context: &Context) -> anyhow::Result<Vec<Line>> {
    match row {
        "version" => version::measure(context).await,
        "log" => log::measure(context).await,
        "daemon" => daemon::measure(context).await,
        "driver" => driver::measure(context).await,
        "start" => start::measure(context).await,
        "filter" => filter::measure(context).await,
        "exec" => exec::measure(context).await,
        "containers" => containers::measure(context).await,
        "terminal" => terminal::measure(context).await,
        "flood" => flood::measure(context).await,
        "egress" => egress::measure(context).await,
        "proxies" => proxies::measure(context).await,
        "memory" => memory::measure(context).await,
        "list" => list::measure(context).await,
        other => anyhow::bail!("no such row: {other}"),
    }
}
