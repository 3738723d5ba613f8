//! MCP servers that an agent starts by itself (contract B6): they see the sandbox's environment, not the agent's keys.

use serde_json::{Value, json};

/// An entry of ACP's `mcpServers` whose program is started without these variables, whatever the agent hands on.
/// The entry's own `env` wins, as it does with the agent. One that is reached by `url` is left as it is.
#[must_use]
pub fn without_variables(mut server: Value, names: &[String]) -> Value {
    let Some(command) = server.get("command").and_then(Value::as_str) else {
        return server;
    };
    let own = |name: &String| {
        let all = server.get("env").and_then(Value::as_array);
        all.is_some_and(|all| all.iter().any(|one| one["name"] == json!(name)))
    };
    let dropped = names.iter().filter(|name| !own(name));
    let mut args: Vec<Value> = dropped
        .flat_map(|name| [json!("-u"), json!(name)])
        .collect();
    if args.is_empty() {
        return server;
    }
    args.extend([json!("--"), json!(command)]);
    if let Some(rest) = server.get("args").and_then(Value::as_array) {
        args.extend(rest.iter().cloned());
    }
    // Where every system with a shell has it.
    server["command"] = json!("/usr/bin/env");
    server["args"] = Value::Array(args);
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dropped_unless_the_server_brings_its_own() {
        let names = ["KEY".to_owned(), "TOKEN".to_owned()];
        let server = json!({"name": "a", "command": "x", "args": ["1"],
            "env": [{"name": "TOKEN", "value": "own"}]});
        let wrapped = without_variables(server, &names);
        assert_eq!(wrapped["command"], "/usr/bin/env");
        assert_eq!(wrapped["args"], json!(["-u", "KEY", "--", "x", "1"]));
        assert_eq!(wrapped["env"][0]["value"], "own");
        let by_url = json!({"name": "b", "url": "https://example.com/"});
        assert_eq!(without_variables(by_url.clone(), &names), by_url);
        let plain = json!({"name": "c", "command": "x"});
        assert_eq!(without_variables(plain.clone(), &[]), plain);
    }

    #[test]
    fn the_program_really_starts_without_them() {
        let server = json!({"command": "sh", "args": ["-c", "echo [$KEY] $OTHER"]});
        let wrapped = without_variables(server, &["KEY".to_owned()]);
        let args = wrapped["args"].as_array().expect("arguments");
        let args = args.iter().map(|one| one.as_str().expect("text"));
        let output = std::process::Command::new(wrapped["command"].as_str().expect("a program"))
            .args(args)
            .envs([("KEY", "sk"), ("OTHER", "kept")])
            .output()
            .expect("starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[] kept");
    }
}
