//! The installed program: command line, daemon and egress filter in one file.
//!
//! Called as `handlerd` it is the daemon.

mod demo;
mod programs;
mod reference;

use clap::Parser as _;
use handler_base::http::Endpoint;
use handler_cli::args::Parsed;
use handler_cli::out::Out;
use handler_cli::{Cli, Context};
use handler_server::Layout;
use std::ffi::OsString;
use std::process::ExitCode;

/// Wipes what it frees in the processes of filter and daemon, through which values pass; nowhere else.
#[global_allocator]
static MEMORY: handler_egress::WipingAllocator = handler_egress::WipingAllocator;

fn main() -> ExitCode {
    // Cannot fail: nothing was installed before.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let cli = Cli::parse_from(arguments());
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let out = Out::new(cli.json, cli.quiet, no_colour);
    match handler_cli::split(cli) {
        Parsed::Program(program) => programs::run(program, &out),
        Parsed::Client(action) => match context(out.clone()) {
            Ok(context) => {
                let run = handler_cli::run(action, &context);
                match programs::block_on(run) {
                    Ok(code) => ExitCode::from(code),
                    Err(error) => fail(&out, &error.into()),
                }
            }
            Err(error) => fail(&out, &error),
        },
    }
}

/// `handlerd …` is `handler serve …`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let is_daemon = arguments
        .first()
        .and_then(|program| std::path::Path::new(program).file_name())
        .is_some_and(|name| name == "handlerd");
    if is_daemon {
        arguments.insert(1, "serve".into());
    }
    arguments
}

/// Where the daemon is.
fn context(out: Out) -> anyhow::Result<Context> {
    let layout = layout()?;
    let endpoint = match std::env::var("HANDLER_URL") {
        Ok(url) => {
            let address = url
                .strip_prefix("http://")
                .map(|rest| rest.trim_end_matches('/').to_owned())
                .ok_or_else(|| {
                    anyhow::anyhow!("HANDLER_URL=`{url}`: write http://127.0.0.1:PORT")
                })?;
            Endpoint::Tcp(address)
        }
        Err(_) => Endpoint::Unix(layout.daemon_socket()),
    };
    Ok(Context {
        out,
        endpoint,
        token_file: layout.token_file(),
        daemon_log: layout.daemon_log(),
        filter_socket: layout.egress_control(),
        own_folders: layout.own_dirs().map(std::path::Path::to_owned).into(),
        program: std::env::current_exe()?,
    })
}

fn layout() -> anyhow::Result<Layout> {
    let uid = rustix::process::getuid().as_raw();
    Ok(Layout::from_env(|name| std::env::var(name).ok(), uid)?)
}

fn fail(out: &Out, error: &anyhow::Error) -> ExitCode {
    out.failure(&handler_cli::Failure::Failed(format!("{error:#}")));
    ExitCode::from(1)
}
