//! MCP servers that an agent starts by itself (contract B6): they see the sandbox's environment, not the agent's keys.

use handler_types::harness::McpServer;
use handler_types::launch::LaunchFile;

/// Where the program is that puts the sandbox's environment back. Not below `/opt`, which a native sandbox shows as
/// the host has it.
pub(crate) const SANDBOX_ENV: &str = "/handler/bin/handler-sandbox-env";

/// Set for an agent, so that its own environment is found again among its ancestors'.
pub(crate) const AGENT_MARK: &str = "HANDLER_AGENT";

const SANDBOX_ENV_SCRIPT: &str = include_str!("../data/image/handler-sandbox-env");

/// The program, for the launch's files.
pub(crate) fn sandbox_env_file() -> LaunchFile {
    LaunchFile {
        target: SANDBOX_ENV.to_owned(),
        content: SANDBOX_ENV_SCRIPT.to_owned(),
        mode: 0o755,
        writable: false,
    }
}

/// A server whose program is started without these variables, whatever the agent hands on. Its own `env` wins, as
/// it does with the agent. One that is reached by an address is left as it is.
#[must_use]
pub fn without(server: McpServer, names: &[String]) -> McpServer {
    wrapped(server, names, |dropped| {
        if dropped.is_empty() {
            return None;
        }
        let args = dropped
            .iter()
            .flat_map(|name| ["-u".to_owned(), (*name).clone()]);
        // Where every system with a shell has it.
        Some(("/usr/bin/env".to_owned(), args.collect()))
    })
}

/// A server whose program sees the sandbox's environment without these variables, however little the agent hands on.
#[must_use]
pub fn with_sandbox_env(server: McpServer, names: &[String]) -> McpServer {
    wrapped(server, names, |dropped| {
        let args = dropped
            .iter()
            .flat_map(|name| ["--drop".to_owned(), (*name).clone()]);
        Some((SANDBOX_ENV.to_owned(), args.collect()))
    })
}

/// Puts another program before a server's; `how` is given the variables that are not the server's own.
fn wrapped(
    server: McpServer,
    names: &[String],
    how: impl FnOnce(&[&String]) -> Option<(String, Vec<String>)>,
) -> McpServer {
    let McpServer::Stdio {
        name,
        command,
        args,
        env,
    } = server
    else {
        return server;
    };
    let is_own = |name: &&String| env.iter().any(|own| own.name == **name);
    let dropped: Vec<_> = names.iter().filter(|name| !is_own(name)).collect();
    let (command, args) = match how(&dropped) {
        None => (command, args),
        Some((wrapper, mut before)) => {
            before.extend(["--".to_owned(), command]);
            before.extend(args);
            (wrapper, before)
        }
    };
    McpServer::Stdio {
        name,
        command,
        args,
        env,
    }
}

/// A server for a harness, as its sessions get it: with the sandbox's environment and without these variables.
#[must_use]
pub fn for_harness(
    descriptor: &handler_types::harness::HarnessDescriptor,
    server: McpServer,
    names: &[String],
) -> McpServer {
    match descriptor.mcp_env {
        handler_types::harness::McpEnv::Inherit => without(server, names),
        handler_types::harness::McpEnv::Sandbox => with_sandbox_env(server, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::harness::{McpTransport, NamedValue};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    fn server(script: &str, own: Option<&str>) -> McpServer {
        let own = own.map(|name| NamedValue {
            name: name.to_owned(),
            value: "own".to_owned(),
        });
        McpServer::Stdio {
            name: "a".to_owned(),
            command: "/bin/sh".to_owned(),
            args: ["-c", script].map(str::to_owned).to_vec(),
            env: own.into_iter().collect(),
        }
    }

    fn parts(server: &McpServer) -> (&str, Vec<&str>) {
        let McpServer::Stdio { command, args, .. } = server else {
            panic!("a program")
        };
        (command, args.iter().map(String::as_str).collect())
    }

    #[test]
    fn keys_are_dropped_unless_the_server_brings_its_own() {
        let names = ["KEY".to_owned(), "TOKEN".to_owned()];
        let wrapped = without(server("x", Some("TOKEN")), &names);
        assert_eq!(
            parts(&wrapped),
            (
                "/usr/bin/env",
                vec!["-u", "KEY", "--", "/bin/sh", "-c", "x"]
            )
        );
        let wrapped = with_sandbox_env(server("x", Some("TOKEN")), &names);
        assert_eq!(
            parts(&wrapped).1,
            ["--drop", "KEY", "--", "/bin/sh", "-c", "x"]
        );
        let by_url = McpServer::Remote {
            transport: McpTransport::Http,
            name: "b".to_owned(),
            url: "https://example.com/".to_owned(),
            headers: Vec::new(),
        };
        assert_eq!(without(by_url.clone(), &names), by_url);
        assert_eq!(with_sandbox_env(by_url.clone(), &names), by_url);
        assert_eq!(without(server("x", None), &[]), server("x", None));
    }

    /// Runs a server as an agent would that hands on `HOME`, `PATH` and `own` only, below a process that has the
    /// sandbox's environment.
    fn run(wrapped: &McpServer, script: &Path, own: &str) -> Output {
        let (_, args) = parts(wrapped);
        let mut agent = Command::new("/bin/sh");
        agent
            .args([
                "-c",
                "exec 3<&0; env -i PATH=\"$PATH\" OWN=\"$own\" \"$@\" <&3",
                "sh",
            ])
            .arg(script)
            .args(args)
            .env_clear()
            .envs([
                ("PATH", std::env::var("PATH").unwrap().as_str()),
                (AGENT_MARK, "1"),
                ("own", own),
                ("PROXY", "http://127.0.0.1:3128"),
                ("LINES_", "one\ntwo"),
                ("QUOTES", "a'b\"c$d`e\\\\"),
                ("KEY", "sk"),
                ("OWN", "sandbox's"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = agent.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"spoken\n").unwrap();
        child.wait_with_output().unwrap()
    }

    #[test]
    fn a_program_sees_the_sandbox_and_not_the_key_and_keeps_its_input() {
        let folder = std::env::temp_dir().join(format!("handler-env-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join("handler-sandbox-env");
        std::fs::write(&script, SANDBOX_ENV_SCRIPT).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let show = "read -r heard; printf '%s|' \"$heard\" \"$PROXY\" \"$LINES_\" \"$QUOTES\" \"$OWN\" \"[$KEY]\"";
        let wrapped = with_sandbox_env(server(show, None), &["KEY".to_owned()]);
        let output = run(&wrapped, &script, "caller's");
        let refused = Command::new(&script).arg("--wrong").output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "spoken|http://127.0.0.1:3128|one\ntwo|a'b\"c$d`e\\\\|caller's|[]|",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(refused.status.code(), Some(2));
    }

    #[test]
    fn the_program_really_starts_without_them() {
        let wrapped = without(server("echo [$KEY] $OTHER", None), &["KEY".to_owned()]);
        let (command, args) = parts(&wrapped);
        let output = Command::new(command)
            .args(args)
            .envs([("KEY", "sk"), ("OTHER", "kept")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[] kept");
    }
}
