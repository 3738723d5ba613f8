//! The command line: `[--quick] [--list] [--json FILE] [ROW…]`.

use crate::rows;
use anyhow::{Context as _, bail};
use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// Few repetitions and small amounts; nothing is judged.
    pub(crate) quick: bool,
    /// Only say which rows there are.
    pub(crate) list: bool,
    /// Where the document goes.
    pub(crate) json: PathBuf,
    /// Rows to measure; empty: all.
    pub(crate) rows: Vec<String>,
}

impl Args {
    /// Reads them.
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut args = Self {
            quick: false,
            list: false,
            json: PathBuf::from("target/bench/bench.json"),
            rows: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => args.quick = true,
                "--list" => args.list = true,
                "--json" => args.json = rest.next().context("--json: name a file")?.into(),
                row if rows::ALL.iter().any(|known| known.name == row) => {
                    args.rows.push(row.to_owned());
                }
                other => bail!("`{other}`: no such row or flag; --list shows the rows"),
            }
        }
        Ok(args)
    }

    /// Whether a row is wanted.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| wanted == row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Args> {
        Args::parse(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn rows_are_chosen_and_unknown_ones_refused() {
        let args = parse(&["--quick", "log", "--json", "x.json"]).expect("arguments");
        assert!(args.quick && args.wants("log") && !args.wants("start"));
        assert_eq!(args.json, PathBuf::from("x.json"));
        assert!(parse(&[]).expect("none").wants("start"));
        assert!(parse(&["nonsense"]).is_err());
        assert!(parse(&["--json"]).is_err());
    }
}
