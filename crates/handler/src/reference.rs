//! The reference page: commands, environment and API, made from the code that implements them.

use clap::CommandFactory as _;
use handler_cli::Cli;
use std::fmt::Write as _;

/// The whole page, Markdown.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Reference\n\nMade by `cargo xtask made` from the program; do not edit.\n\n## Commands\n",
    );
    commands(&mut page, &Cli::command(), "");
    environment(&mut page);
    api(&mut page);
    page
}

fn commands(page: &mut String, command: &clap::Command, before: &str) {
    let name = format!("{before}{}", command.get_name());
    if !before.is_empty() {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        line(page, &format!("\n### `{name}`\n\n{about}.\n"));
        let shown =
            |a: &&clap::Arg| !a.is_hide_set() && !matches!(a.get_id().as_str(), "help" | "version");
        for argument in command.get_arguments().filter(shown) {
            let is_global = argument.is_global_set();
            if !is_global {
                line(page, &describe(argument));
            }
        }
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        commands(page, sub, &format!("{name} "));
    }
}

fn describe(argument: &clap::Arg) -> String {
    let names: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    let takes_value = argument.get_action().takes_values();
    let value = if takes_value {
        format!(" <{}>", names.join(" "))
    } else {
        String::new()
    };
    let spelled = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{value}"),
        (Some(long), None) => format!("--{long}{value}"),
        (None, Some(short)) => format!("-{short}{value}"),
        (None, None) => format!("<{}>", names.join(" ")),
    };
    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!("- `{spelled}`: {help}")
}

fn environment(page: &mut String) {
    line(
        page,
        "\n## Environment\n\n| variable | meaning |\n|---|---|",
    );
    let more = [
        (
            "HANDLER_URL",
            "the daemon's address for the command line, `http://127.0.0.1:PORT` (default: its Unix socket)",
        ),
        ("NO_COLOR", "no colours"),
    ];
    for (name, meaning) in handler_server::config::ENVIRONMENT.iter().chain(&more) {
        line(page, &format!("| `{name}` | {meaning} |"));
    }
}

fn api(page: &mut String) {
    line(
        page,
        "\n## API\n\nThe full description is `openapi/handler.json`, also served at `/openapi.json`.\n",
    );
    line(page, "| method and path | does |\n|---|---|");
    let document = serde_json::to_value(handler_server::http::openapi()).unwrap_or_default();
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    for (path, methods) in &paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let summary = operation["summary"].as_str().unwrap_or_default();
            line(
                page,
                &format!("| `{} {path}` | {summary} |", method.to_uppercase()),
            );
        }
    }
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
