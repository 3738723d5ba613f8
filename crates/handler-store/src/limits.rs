//! `limits.toml`: what this host hands out, written by people. Absent: the defaults.
//!
//! ```toml
//! sandboxes = 200            # in whatever state
//! running = 50               # running or paused
//! memoryPercent = 90         # or memoryMib = 16384
//! cpuOversubscription = 8.0
//! startsAtOnce = 16
//!
//! [projectDefault]
//! running = 10
//!
//! [projects.big]
//! memoryMib = 8192
//! cpus = 8.0
//! ```

use crate::strict::{Checker, MAX_FILE};
use handler_types::limits::{Limits, Quota};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toml_edit::{Item, TableLike};

const KEYS: &[&str] = &[
    "sandboxes",
    "running",
    "memoryMib",
    "memoryPercent",
    "defaultMemoryMib",
    "cpuOversubscription",
    "startsAtOnce",
    "startsWaiting",
    "projectDefault",
    "projects",
];
const QUOTA_KEYS: &[&str] = &["sandboxes", "running", "memoryMib", "cpus"];
/// Most projects named.
const MAX_PROJECTS: usize = 10_000;
/// Largest number that has a meaning here.
const MOST: u64 = 1 << 40;

/// Why the file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// Its content is wrong; each problem names file and line.
    #[error("{}", problems.join("\n"))]
    Invalid {
        /// In the order of the file's checks.
        problems: Vec<String>,
    },
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

/// Reads the file; the defaults when there is none.
///
/// # Errors
/// [`LimitsError`].
pub fn read(path: &Path) -> Result<Limits, LimitsError> {
    let failed = |source| LimitsError::Io {
        path: path.to_owned(),
        source,
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Limits::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(failed(io::Error::other("it is larger than 1 MiB")));
    }
    parse(&path.display().to_string(), &text)
}

fn parse(file: &str, text: &str) -> Result<Limits, LimitsError> {
    let mut checker = Checker::new(file, text);
    let limits = match checker.parse() {
        Some(document) => limits(&mut checker, document.as_table()),
        None => Limits::default(),
    };
    if checker.has_problems() {
        return Err(LimitsError::Invalid {
            problems: checker.into_problems(),
        });
    }
    Ok(limits)
}

fn limits(checker: &mut Checker<'_>, table: &dyn TableLike) -> Limits {
    checker.known_keys(table, KEYS, "");
    let usual = Limits::default();
    let small = |number: Option<u64>, usual: u32| {
        number.map_or(usual, |number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    let starts_at_once = whole(checker, table, "startsAtOnce", 1);
    let starts_waiting = whole(checker, table, "startsWaiting", 0);
    Limits {
        sandboxes: whole(checker, table, "sandboxes", 0),
        running: whole(checker, table, "running", 0),
        memory_mib: whole(checker, table, "memoryMib", 0),
        memory_percent: whole(checker, table, "memoryPercent", 1).unwrap_or(usual.memory_percent),
        default_memory_mib: whole(checker, table, "defaultMemoryMib", 0)
            .unwrap_or(usual.default_memory_mib),
        cpu_oversubscription: number(checker, table, "cpuOversubscription")
            .unwrap_or(usual.cpu_oversubscription),
        starts_at_once: small(starts_at_once, usual.starts_at_once),
        starts_waiting: small(starts_waiting, usual.starts_waiting),
        project_default: table
            .get("projectDefault")
            .map(|item| quota(checker, item, "projectDefault"))
            .unwrap_or_default(),
        projects: projects(checker, table),
    }
}

fn projects(
    checker: &mut Checker<'_>,
    table: &dyn TableLike,
) -> std::collections::BTreeMap<String, Quota> {
    let Some(item) = table.get("projects") else {
        return Default::default();
    };
    let Some(named) = item.as_table_like() else {
        checker.problem(
            item.span(),
            "`projects` must be a table, e.g. `[projects.NAME]`",
        );
        return Default::default();
    };
    if named.len() > MAX_PROJECTS {
        checker.problem(item.span(), "more than 10000 projects");
        return Default::default();
    }
    named
        .iter()
        .map(|(name, item)| (name.to_owned(), quota(checker, item, "projects")))
        .collect()
}

fn quota(checker: &mut Checker<'_>, item: &Item, place: &str) -> Quota {
    let Some(table) = item.as_table_like() else {
        checker.problem(item.span(), &format!("each of `{place}` must be a table"));
        return Quota::default();
    };
    checker.known_keys(table, QUOTA_KEYS, &format!(" in {place}"));
    Quota {
        sandboxes: whole(checker, table, "sandboxes", 0),
        running: whole(checker, table, "running", 0),
        memory_mib: whole(checker, table, "memoryMib", 0),
        cpus: number(checker, table, "cpus"),
    }
}

/// A whole number that is at least `least`; anything else is noted.
fn whole(checker: &mut Checker<'_>, table: &dyn TableLike, key: &str, least: u64) -> Option<u64> {
    let item = table.get(key)?;
    let number = item
        .as_integer()
        .and_then(|number| u64::try_from(number).ok())
        .filter(|number| (least..=MOST).contains(number));
    if number.is_none() {
        let message = format!("`{key}` must be a whole number, at least {least}");
        checker.problem(item.span(), &message);
    }
    number
}

/// A number above 0; anything else is noted.
fn number(checker: &mut Checker<'_>, table: &dyn TableLike, key: &str) -> Option<f64> {
    let item = table.get(key)?;
    let whole = item
        .as_integer()
        .and_then(|number| i32::try_from(number).ok())
        .map(f64::from);
    let number = item
        .as_float()
        .or(whole)
        .filter(|number| number.is_finite() && *number > 0.0 && *number < 1e9);
    if number.is_none() {
        checker.problem(item.span(), &format!("`{key}` must be a number above 0"));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_and_the_rest_is_as_usual() {
        let text = "sandboxes = 200\nmemoryMib = 4096\ncpuOversubscription = 2\nstartsAtOnce = 3\n\
                    [projectDefault]\nrunning = 10\n[projects.big]\ncpus = 8.5\n";
        let limits = parse("limits.toml", text).expect("fine");
        assert_eq!(limits.sandboxes, Some(200));
        assert_eq!(limits.memory_mib, Some(4096));
        assert!((limits.cpu_oversubscription - 2.0).abs() < 1e-9);
        assert_eq!((limits.starts_at_once, limits.starts_waiting), (3, 1024));
        assert_eq!(limits.project_default.running, Some(10));
        assert_eq!(limits.projects["big"].cpus, Some(8.5));
        assert_eq!(parse("limits.toml", "").expect("fine"), Limits::default());
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let text = "sandboxs = 1\nrunning = -1\nmemoryPercent = 0\ncpuOversubscription = \"8\"\n\
                    startsAtOnce = 0\nprojects = 3\n[projectDefault]\nmemory = 1\n";
        let error = parse("limits.toml", text).expect_err("wrong");
        let LimitsError::Invalid { problems } = error else {
            panic!("{error}");
        };
        assert_eq!(problems.len(), 7, "{problems:?}");
        assert_eq!(
            problems[0],
            "limits.toml:1: unknown key `sandboxs`; did you mean `sandboxes`?"
        );
        assert!(problems.iter().any(|p| p.starts_with("limits.toml:2:")));
        assert!(problems.iter().any(|p| p.contains("in projectDefault")));
        assert!(parse("limits.toml", "not toml").is_err());
    }

    #[test]
    fn no_file_is_no_limit() {
        let folder = tempfile::tempdir().expect("temp");
        let path = folder.path().join("limits.toml");
        assert_eq!(read(&path).expect("none"), Limits::default());
        std::fs::write(&path, "running = 2\n").expect("write");
        assert_eq!(read(&path).expect("read").running, Some(2));
    }
}
