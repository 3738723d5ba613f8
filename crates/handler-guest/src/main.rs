//! Verbs of the guest program.

use handler_guest::{GuestConfig, device, launch, serve, serve_args};
use handler_types::launch::{EGRESS_DIR, LaunchPlan};
use std::process::ExitCode;

const USAGE: &str = "\
handler-guest serve --socket PATH --workdir DIR [--home DIR] [--egress-socket PATH --egress-port N [--transparent UID:GID]]
handler-guest launch        (a plan on standard input)
handler-guest probe [images | transparent]
handler-guest --version
";
/// Exit code of a wrong command line.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next();
    match verb.as_ref().and_then(|verb| verb.to_str()) {
        Some("serve") => run_serve(arguments),
        Some("launch") => {
            launch::run(|launched, plan| serve(launched.listener, launched.device, config_of(plan)))
        }
        Some("probe") => launch::probe(besides(arguments.next())),
        Some("--version") => {
            say(std::io::stdout(), concat!(env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
        _ => {
            say(std::io::stderr(), USAGE);
            ExitCode::from(WRONG_USE)
        }
    }
}

fn besides(argument: Option<std::ffi::OsString>) -> launch::Besides {
    match argument.as_ref().and_then(|argument| argument.to_str()) {
        Some("images") => launch::Besides::Images,
        Some("transparent") => launch::Besides::Transparent,
        _ => launch::Besides::Nothing,
    }
}

fn run_serve(arguments: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let args = match serve_args::parse(arguments) {
        Ok(args) => args,
        Err(problem) => {
            say(
                std::io::stderr(),
                &format!("handler-guest: {problem}\n{USAGE}"),
            );
            return ExitCode::from(WRONG_USE);
        }
    };
    let device = match args.transparent {
        true => device::enter(args.config.uid, args.config.gid).map(Some),
        false => Ok(None),
    };
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            say(std::io::stderr(), &format!("handler-guest: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    match serve_args::listen(&args.socket) {
        Ok(listener) => exit_code(serve(listener, device, args.config)),
        Err(error) => {
            let socket = args.socket.display();
            say(
                std::io::stderr(),
                &format!("handler-guest: {socket}: {error}\n"),
            );
            ExitCode::FAILURE
        }
    }
}

/// The guest's settings in a sandbox that `launch` made.
fn config_of(plan: &LaunchPlan) -> GuestConfig {
    GuestConfig {
        workdir: plan.workdir.clone(),
        home: plan.home.clone(),
        env: plan
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        uid: plan.uid,
        gid: plan.gid,
        egress_socket: plan
            .egress_dir
            .as_ref()
            .map(|_| std::path::Path::new(EGRESS_DIR).join("proxy.sock")),
        egress_port: plan.egress_port,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Writes; nobody to tell when that fails.
fn say(mut to: impl std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
    let _ = to.flush();
}
