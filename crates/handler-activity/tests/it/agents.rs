//! Agent programs among processes.

use handler_activity::agents::{Process, catalogue, harness_of, running};
use handler_types::observe::AgentFace;

struct Row {
    pid: i32,
    ppid: i32,
    comm: &'static str,
    argv: Vec<String>,
}

fn row(pid: i32, ppid: i32, comm: &'static str, argv: &str) -> Row {
    Row {
        pid,
        ppid,
        comm,
        argv: argv.split(' ').map(str::to_owned).collect(),
    }
}

fn found(rows: &[Row]) -> Vec<(&'static str, i32, AgentFace)> {
    let table: Vec<Process<'_>> = rows
        .iter()
        .map(|row| Process {
            pid: row.pid,
            ppid: row.ppid,
            comm: row.comm,
            argv: &row.argv,
        })
        .collect();
    running(&table)
        .into_iter()
        .flat_map(|(harness, agents)| agents.into_iter().map(move |a| (harness, a.pid, a.face)))
        .collect()
}

#[test]
fn each_harness_is_found_as_it_was_observed() {
    use AgentFace::{Acp, Terminal};
    for (rows, expected) in [
        (
            vec![row(5, 1, "claude", "claude --model x")],
            ("claude-code", 5, Terminal),
        ),
        (
            vec![
                row(5, 1, "node", "node /usr/local/bin/claude-agent-acp"),
                row(
                    6,
                    5,
                    "claude",
                    "claude --output-format stream-json --verbose",
                ),
            ],
            ("claude-code", 5, Acp),
        ),
        (
            vec![
                row(5, 1, "codex", "/usr/lib/codex/bin/codex"),
                row(6, 5, "codex", "codex app-server --listen unix:///x"),
            ],
            ("codex", 5, Terminal),
        ),
        (
            vec![
                row(5, 1, "node", "node /x/codex-acp"),
                row(6, 5, "codex", "codex app-server"),
            ],
            ("codex", 5, Acp),
        ),
        (
            vec![row(5, 1, "pi", "pi                    ")],
            ("pi", 5, Terminal),
        ),
        (
            vec![row(5, 1, "node", "node /x/pi-acp"), row(6, 5, "pi", "pi ")],
            ("pi", 5, Acp),
        ),
        (
            vec![row(5, 1, "opencode", "/x/opencode")],
            ("opencode", 5, Terminal),
        ),
        (
            vec![row(5, 1, "opencode", "opencode acp")],
            ("opencode", 5, Acp),
        ),
        (
            vec![
                row(5, 1, "node", "node /x/.bin/gemini"),
                row(
                    6,
                    5,
                    "node",
                    "node --max-old-space-size=2000 /x/.bin/gemini",
                ),
            ],
            ("gemini-cli", 5, Terminal),
        ),
        (
            vec![row(5, 1, "MainThread", "node /x/.bin/gemini --acp")],
            ("gemini-cli", 5, Acp),
        ),
        (
            vec![
                row(5, 1, "node", "node /x/.bin/qwen"),
                row(
                    6,
                    5,
                    "node",
                    "node --expose-gc /x/@qwen-code/qwen-code/cli.js",
                ),
                row(
                    7,
                    6,
                    "node",
                    "node --expose-gc /x/@qwen-code/qwen-code/cli.js",
                ),
            ],
            ("qwen-code", 5, Terminal),
        ),
        (
            vec![
                row(5, 1, "vibe-rs", "/x/vibe/_bin/vibe-rs"),
                row(6, 5, "vibe-app-server", "/x/vibe-app-server"),
            ],
            ("vibe", 5, Terminal),
        ),
        (
            vec![row(5, 1, "vibe-acp", "/usr/bin/python3 /x/bin/vibe-acp")],
            ("vibe", 5, Acp),
        ),
    ] {
        assert_eq!(found(&rows), [expected]);
    }
}

#[test]
fn a_name_that_is_only_mentioned_is_no_agent() {
    let rows = [
        row(2, 1, "grep", "grep -r claude ."),
        row(3, 1, "vim", "vim codex.md"),
        row(
            4,
            1,
            "sh",
            "sh -c command -v claude codex gemini opencode qwen vibe pi",
        ),
        row(5, 1, "node", "node server.js claude"),
        row(6, 1, "node", "node -e claude"),
        row(7, 1, "python3", "python3 -m claude"),
        row(8, 1, "tail", "tail -f /var/log/claude"),
        row(9, 1, "claudette", "claudette"),
        row(10, 1, "node", "node /x/not-gemini"),
        row(11, 1, "codex", "codex app-server daemon pid-update-loop"),
        row(12, 1, "vibe-app-server", "vibe-app-server"),
        row(13, 1, "", ""),
    ];
    assert_eq!(found(&rows), []);
    assert_eq!(found(&[]), []);
}

#[test]
fn two_of_a_kind_are_two_and_a_circle_of_parents_ends() {
    let rows = [
        row(5, 1, "claude", "claude"),
        row(6, 1, "claude", "claude"),
        row(8, 9, "sh", "sh"),
        row(9, 8, "sh", "sh"),
        row(10, 9, "pi", "pi"),
    ];
    let found = found(&rows);
    assert_eq!(found.len(), 3);
    assert!(found.contains(&("pi", 10, AgentFace::Terminal)));
}

#[test]
fn helpers_belong_to_their_harness_too() {
    let argv = ["codex".to_owned(), "app-server".to_owned()];
    let process = Process {
        pid: 2,
        ppid: 1,
        comm: "codex",
        argv: &argv,
    };
    assert_eq!(harness_of(&process), Some("codex"));
}

#[test]
fn every_harness_has_programs_to_look_for() {
    let names: Vec<&str> = catalogue().map(|known| known.harness).collect();
    assert_eq!(
        names,
        [
            "claude-code",
            "codex",
            "gemini-cli",
            "opencode",
            "pi",
            "qwen-code",
            "vibe"
        ]
    );
    assert!(catalogue().all(|known| !known.programs.is_empty() && !known.product.is_empty()));
}
