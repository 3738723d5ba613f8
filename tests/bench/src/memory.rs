//! Resident memory of a process.

use anyhow::Context as _;

/// Resident memory in MiB, shared pages of files included: what `ps` shows.
pub(crate) fn resident_mib(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid}"))?;
    field_kib(&text, "VmRSS")
        .map(|kib| kib / 1024.0)
        .context("no VmRSS")
}

/// The part of it that is the process's own and no file's, MiB.
pub(crate) fn anonymous_mib(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid}"))?;
    field_kib(&text, "RssAnon")
        .map(|kib| kib / 1024.0)
        .context("no RssAnon")
}

fn field_kib(status: &str, name: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_by_its_whole_name() {
        let text = "VmRSSX:\t9 kB\nVmRSS:\t  2048 kB\nRssAnon:\t 512 kB\n";
        assert_eq!(field_kib(text, "VmRSS"), Some(2048.0));
        assert_eq!(field_kib(text, "RssAnon"), Some(512.0));
        assert_eq!(field_kib(text, "VmSwap"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let own = std::process::id();
        let resident = resident_mib(own).expect("resident");
        assert!(resident > 0.1 && anonymous_mib(own).expect("anonymous") <= resident);
    }
}
