//! The caches that `toolbox.toml` declares: read strictly, changed here without losing its comments.

use crate::providers::read_text;
use crate::strict::Checker;
use handler_types::cache::{CacheDeclaration, MAX_CACHES};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table, value};

/// Longest target, and longest text about a cache, characters.
const MOST_TEXT: usize = 200;

/// Declared caches by name.
pub type Declared = BTreeMap<String, CacheDeclaration>;

/// Why caches cannot be declared.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// What is asked for or written cannot be.
    #[error("{}", problems.join("; "))]
    Invalid {
        /// What is wrong; at least one.
        problems: Vec<String>,
    },
    /// The file system failed.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Whether it can be a cache's name: it names its folder too.
#[must_use]
pub fn is_cache_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || matches!(b, b'-' | b'_'))
}

/// What is wrong with declarations; empty: nothing.
#[must_use]
pub fn problems(declared: &Declared) -> Vec<String> {
    let mut wrong = Vec::new();
    if declared.len() > MAX_CACHES {
        wrong.push(format!("at most {MAX_CACHES} caches can be declared"));
    }
    let mut places: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, cache) in declared {
        let shown: String = name.chars().take(64).collect();
        if !is_cache_name(name) {
            wrong.push(format!(
                "`{shown}`: a name is 1 to 64 of a-z, 0-9, - and _, the first a letter or digit"
            ));
        }
        if !is_target(&cache.target) {
            wrong.push(format!(
                "{shown}: target is a folder below the home, e.g. `~/.cargo`, without `.` and `..`"
            ));
        } else if let Some(other) = places.insert(&cache.target, name) {
            wrong.push(format!("{shown} and {other} are both at {}", cache.target));
        }
        if cache.about.chars().count() > MOST_TEXT || cache.about.contains(char::is_control) {
            wrong.push(format!(
                "{shown}: about is one line of at most {MOST_TEXT} characters"
            ));
        }
    }
    wrong
}

fn is_target(target: &str) -> bool {
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.contains(|c: char| c.is_control() || matches!(c, ':' | ','))
    };
    target.chars().count() <= MOST_TEXT
        && target
            .strip_prefix("~/")
            .is_some_and(|below| below.split('/').all(is_part))
}

/// The caches that a file declares; none when there is no file.
///
/// # Errors
/// [`CacheError`] with file and line of everything that is wrong.
pub fn read(path: &Path) -> Result<Declared, CacheError> {
    match text(path)? {
        Some(text) => parse(&text),
        None => Ok(Declared::new()),
    }
}

/// Declares these caches and no others.
///
/// # Errors
/// [`CacheError`]; the file is then as before.
pub fn write(path: &Path, declared: &Declared) -> Result<(), CacheError> {
    let problems = problems(declared);
    if !problems.is_empty() {
        return Err(CacheError::Invalid { problems });
    }
    let before = text(path)?.unwrap_or_default();
    parse(&before)?;
    let mut document: DocumentMut = before.parse().map_err(|_| CacheError::Invalid {
        problems: vec!["toolbox.toml: not TOML".to_owned()],
    })?;
    let tables = document
        .entry("caches")
        .or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        })
        .as_table_like_mut();
    if let Some(tables) = tables {
        let gone: Vec<String> = tables
            .iter()
            .map(|(name, _)| name.to_owned())
            .filter(|name| !declared.contains_key(name))
            .collect();
        for name in gone {
            tables.remove(&name);
        }
        for (name, cache) in declared {
            if tables.get(name).is_none() {
                tables.insert(name, Item::Table(Table::new()));
            }
            if let Some(table) = tables.get_mut(name).and_then(Item::as_table_like_mut) {
                table.insert("target", value(&cache.target));
                table.insert("about", value(&cache.about));
                if cache.general {
                    table.insert("general", value(true));
                } else {
                    table.remove("general");
                }
            }
        }
    }
    let text = document.to_string();
    parse(&text)?;
    let failed = |source| CacheError::Io {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        handler_base::fs::create_private_dir(folder).map_err(failed)?;
    }
    handler_base::fs::write_atomic(path, text.as_bytes(), 0o644).map_err(failed)
}

fn text(path: &Path) -> Result<Option<String>, CacheError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CacheError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parse(text: &str) -> Result<Declared, CacheError> {
    let mut checker = Checker::new("toolbox.toml", text);
    let mut declared = Declared::new();
    if let Some(document) = checker.parse() {
        checker.known_keys(document.as_table(), &["caches"], "");
        match document
            .get("caches")
            .map(|item| (item, item.as_table_like()))
        {
            None => {}
            Some((item, None)) => checker.problem(item.span(), "caches must be a table"),
            Some((_, Some(tables))) => {
                for (name, item) in tables.iter() {
                    if let Some(cache) = declaration(&mut checker, name, item) {
                        declared.insert(name.to_owned(), cache);
                    }
                }
            }
        }
    }
    let mut wrong = problems(&declared);
    if checker.has_problems() {
        wrong = checker.into_problems();
    }
    if wrong.is_empty() {
        return Ok(declared);
    }
    Err(CacheError::Invalid { problems: wrong })
}

fn declaration(checker: &mut Checker<'_>, name: &str, item: &Item) -> Option<CacheDeclaration> {
    let Some(table) = item.as_table_like() else {
        checker.problem(item.span(), "a cache must be a table, e.g. [caches.npm]");
        return None;
    };
    let shown: String = name.chars().take(64).collect();
    checker.known_keys(
        table,
        &["target", "about", "general"],
        &format!(" in caches.{shown}"),
    );
    let mut cache = CacheDeclaration::default();
    match table.get("target") {
        None => checker.problem(item.span(), "a cache needs a target"),
        Some(item) => cache.target = checker.text(item, "target")?.to_owned(),
    }
    if let Some(item) = table.get("about") {
        cache.about = checker.text(item, "about")?.to_owned();
    }
    if let Some(item) = table.get("general") {
        match item.as_bool() {
            Some(general) => cache.general = general,
            None => checker.problem(item.span(), "general must be true or false"),
        }
    }
    Some(cache)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(target: &str) -> CacheDeclaration {
        CacheDeclaration {
            target: target.to_owned(),
            ..CacheDeclaration::default()
        }
    }

    #[test]
    fn only_folders_below_the_home_can_be_caches_and_none_twice() {
        let wrong =
            |target: &str| !problems(&Declared::from([("a".into(), cache(target))])).is_empty();
        for good in ["~/.cargo", "~/.local/share/containers/storage", "~/x y"] {
            assert!(!wrong(good), "{good}");
        }
        for bad in [
            "~", "~/", "/", "/etc", "", ".cargo", "~/../x", "~/a//b", "~/a/", "~/.", "~x/a",
            "~/a:b",
        ] {
            assert!(wrong(bad), "{bad}");
        }
        let twice = Declared::from([("a".into(), cache("~/x")), ("b".into(), cache("~/x"))]);
        assert_eq!(problems(&twice), ["b and a are both at ~/x"]);
        for bad in ["", "A", ".a", "-a", "a/b", "..", &"a".repeat(65)] {
            assert!(!is_cache_name(bad), "{bad}");
        }
        assert!(is_cache_name("pip_3-x"));
    }

    #[test]
    fn comments_survive_a_change() {
        let dir = tempfile::tempdir().expect("temp folder");
        let path = dir.path().join("toolbox/toolbox.toml");
        assert_eq!(read(&path).expect("none"), Declared::new());
        write(&path, &Declared::from([("npm".into(), cache("~/.npm"))])).expect("made");
        std::fs::write(
            &path,
            "# mine\n[caches.npm]\ntarget = \"~/.npm\"\nabout = \"x\"\n\n# crates\n[caches.cargo]\ntarget = \"~/.cargo\" # all\ngeneral = true\n",
        )
        .expect("by hand");
        let mut declared = read(&path).expect("read");
        assert!(declared["cargo"].general);
        declared.remove("npm");
        declared.insert("go".into(), cache("~/go/pkg"));
        write(&path, &declared).expect("changed");
        let after = std::fs::read_to_string(&path).expect("text");
        assert!(after.contains("# crates\n[caches.cargo]"), "{after}");
        assert!(
            after.contains("[caches.go]") && !after.contains("npm"),
            "{after}"
        );
        assert_eq!(read(&path).expect("again"), declared);
        for (text, words) in [
            (
                "[caches.a]\ntarge = 1\n",
                "toolbox.toml:2: unknown key `targe`",
            ),
            ("caches = 1\n", "toolbox.toml:1: caches must be a table"),
            (
                "[caches.a]\ntarget = \"/x\"\n",
                "a: target is a folder below",
            ),
        ] {
            let error = parse(text).expect_err("wrong");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
