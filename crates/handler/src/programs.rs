//! What the program becomes: daemon, filter, scripted model, demo.

use crate::{context, demo, fail, reference};
use handler_cli::args::{EgressArgs, Program, ScriptedArgs, ServeArgs};
use handler_cli::out::Out;
use handler_server::daemon::Programs;
use handler_server::{ServeFlags, Settings};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/guest.rs"));
}

/// Becomes it.
pub(crate) fn run(program: Program, out: &Out) -> ExitCode {
    let outcome = match program {
        Program::Serve(args) => serve(&args),
        Program::Egress(args) => egress(args),
        Program::ReadGit(asked) => match handler_folder::git::serve(&asked) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error.into()),
        },
        Program::ScriptedModel(args) => scripted(args, out),
        Program::Demo(args) => {
            let demo = |context| Ok(block_on(demo::run(args, &context))?);
            match context(out.clone()).and_then(demo) {
                Ok(code) => return code,
                Err(error) => Err(error),
            }
        }
        Program::Reference => {
            out.text(reference::page());
            Ok(())
        }
        Program::Openapi => {
            out.document(&handler_server::http::openapi());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(out, &error),
    }
}

/// Runs a client's work to its end.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = small_runtime()?;
    let outcome = runtime.block_on(work);
    // A read of the terminal cannot be called off: waiting for it would take another Enter.
    runtime.shutdown_background();
    Ok(outcome)
}

/// One thread: a client waits more than it works.
fn small_runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HANDLER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    // A value passes through on its way from who sets it, and to the filter.
    handler_egress::WipingAllocator::wipe_from_now_on();
    log_to_stderr();
    let uid = rustix::process::getuid().as_raw();
    let flags = ServeFlags { port: args.port };
    let settings = Settings::resolve(&flags, |name| std::env::var(name).ok(), uid)?;
    let programs = Programs {
        program: std::env::current_exe()?,
        guest: embedded::GUEST,
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(handler_server::serve(settings, programs))
}

fn egress(args: EgressArgs) -> anyhow::Result<()> {
    log_to_stderr();
    let config =
        handler_egress::EgressConfig::from_env(args.control, |name| std::env::var(name).ok())?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    Ok(runtime.block_on(handler_egress::run(config))?)
}

fn scripted(args: ScriptedArgs, out: &Out) -> anyhow::Result<()> {
    let options = handler_scripted::CliOptions {
        port: args.port,
        key_file: args.key_file,
        log: args.log,
        ..Default::default()
    };
    let out = out.clone();
    let serve = handler_scripted::run_cli(options, move |address| out.line(address));
    Ok(small_runtime()?.block_on(serve)?)
}
