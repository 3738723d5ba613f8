//! What the figures were measured on, without anything that names the machine's owner.

use serde_json::{Value, json};
use std::fs::read_to_string;
use std::process::{Command, Stdio};

/// Facts of the machine at the start.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    memory_mib: u64,
    load: String,
    root: bool,
    date: String,
}

/// Reads them.
pub(crate) fn facts() -> Machine {
    let first_word = |path: &str| {
        let text = read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    Machine {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        processor: processor(&read_to_string("/proc/cpuinfo").unwrap_or_default()),
        kernel: first_word("/proc/sys/kernel/osrelease"),
        memory_mib: memory_mib(&read_to_string("/proc/meminfo").unwrap_or_default()),
        load: first_word("/proc/loadavg"),
        root: rustix::process::geteuid().is_root(),
        date: handler_base::clock::rfc3339(handler_base::clock::now_ms()),
    }
}

impl Machine {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let who = if self.root {
            "root"
        } else {
            "an ordinary user"
        };
        format!(
            "{} cores ({}), kernel {}, {} MiB, load {}, as {who}, {}",
            self.cores, self.processor, self.kernel, self.memory_mib, self.load, self.date
        )
    }

    /// For the document. The load at the end tells whether the machine was busy.
    pub(crate) fn document(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "memoryMib": self.memory_mib,
            "loadAtStart": self.load,
            "loadAtEnd": facts().load,
            "root": self.root,
            "date": self.date,
        })
    }
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(
        || "unknown processor".to_owned(),
        |(_, name)| name.trim().to_owned(),
    )
}

fn memory_mib(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// First line that a command prints; none when it cannot be run or fails.
pub(crate) fn says(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// Versions of everything that was measured. `git`: the commit, with `+` when files differ from it.
pub(crate) fn versions(handler: &std::path::Path) -> Value {
    let commit = says("git", &["rev-parse", "--short", "HEAD"]).map(|commit| {
        let is_changed = says("git", &["status", "--porcelain", "--untracked-files=no"]).is_some();
        if is_changed { commit + "+" } else { commit }
    });
    json!({
        "handler": says(&handler.to_string_lossy(), &["--version"]),
        "commit": commit,
        "bwrap": says("bwrap", &["--version"]),
        "podman": says("podman", &["--version"]),
        "docker": says("docker", &["version", "--format", "{{.Server.Version}}"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_kernels_texts() {
        assert_eq!(memory_mib("MemFree: 1 kB\nMemTotal:   2097152 kB\n"), 2048);
        assert_eq!(memory_mib("nonsense"), 0);
        assert_eq!(
            processor("vendor: x\nmodel name\t: A CPU @ 2GHz\n"),
            "A CPU @ 2GHz"
        );
        assert!(facts().cores > 0);
    }

    #[test]
    fn a_program_that_is_not_there_says_nothing() {
        assert_eq!(says("handler-no-such-program", &[]), None);
        assert_eq!(says("false", &[]), None);
        assert_eq!(says("echo", &["a b"]), Some("a b".to_owned()));
    }
}
