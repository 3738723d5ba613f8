//! What a client asks to run, as the guest understands it.

use handler_types::guest::{ProcessSpec, TtySize};
use std::collections::BTreeMap;

/// Most variables a client may set on a channel.
const MOST_VARIABLES: usize = 64;
/// Longest variable, name and value, bytes.
const LONGEST_VARIABLE: usize = 32 * 1024;
/// Runs its first argument in the best shell there is.
const IN_A_SHELL: &str =
    "command -v bash >/dev/null 2>&1 && exec bash -c \"$1\"; exec /bin/sh -c \"$1\"";
/// A login shell, the best there is.
const LOGIN_SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash -l; exec /bin/sh -l";

/// What a session channel was told before it starts something.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    env: BTreeMap<String, String>,
    tty: Option<TtySize>,
}

impl Wishes {
    /// Notes a variable; says whether it will be set.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        let is_usable = !name.is_empty()
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
            && name.len() + value.len() <= LONGEST_VARIABLE
            && (self.env.len() < MOST_VARIABLES || self.env.contains_key(name));
        if is_usable {
            self.env.insert(name.to_owned(), value.to_owned());
        }
        is_usable
    }

    /// Notes that a terminal is wanted.
    pub(crate) fn terminal(&mut self, term: &str, cols: u32, rows: u32) {
        if !term.is_empty() && term.len() <= 64 {
            self.set("TERM", term);
        }
        self.tty = Some(size(cols, rows));
    }

    /// A shell, or `command` in one.
    pub(crate) fn spec(&self, command: Option<&str>, workdir: &str) -> ProcessSpec {
        let mut env = self.env.clone();
        if self.tty.is_some() {
            env.entry("TERM".to_owned())
                .or_insert_with(|| "xterm-256color".to_owned());
        }
        let argv = match command {
            Some(command) => vec!["/bin/sh", "-c", IN_A_SHELL, "sh", command],
            None => vec!["/bin/sh", "-c", LOGIN_SHELL],
        };
        ProcessSpec {
            key: handler_base::random::hex(12),
            argv: argv.into_iter().map(str::to_owned).collect(),
            env,
            cwd: Some(workdir.replace('\\', "\\\\")),
            stdin: true,
            tty: self.tty,
            tag: "ssh".to_owned(),
            ..ProcessSpec::default()
        }
    }
}

/// A size the guest takes; a client that does not know its own says 0.
pub(crate) fn size(cols: u32, rows: u32) -> TtySize {
    let side = |given: u32, otherwise: u16| match u16::try_from(given.min(10_000)) {
        Ok(side) if side > 0 => side,
        _ => otherwise,
    };
    TtySize {
        cols: side(cols, 80),
        rows: side(rows, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bounded_and_checked() {
        let mut wishes = Wishes::default();
        assert!(wishes.set("LANG", "C.UTF-8") && wishes.set("EMPTY", ""));
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0", "x")] {
            assert!(!wishes.set(name, value), "{name:?}");
        }
        assert!(!wishes.set("LONG", &"x".repeat(LONGEST_VARIABLE)));
        for index in 0..1000 {
            wishes.set(&format!("V{index}"), "x");
        }
        assert_eq!(wishes.env.len(), MOST_VARIABLES);
        assert!(wishes.set("LANG", "C"), "one that is there can be changed");
    }

    #[test]
    fn sizes_out_of_range_become_usable_ones() {
        let of = |cols, rows| {
            let size = size(cols, rows);
            (size.cols, size.rows)
        };
        assert_eq!(of(0, 0), (80, 24));
        assert_eq!(of(132, 50), (132, 50));
        assert_eq!(of(u32::MAX, 70_000), (10_000, 10_000));
    }
}
