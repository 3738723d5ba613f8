//! What `.gitignore` files say. Hostile patterns cost little: matching is quadratic at worst, and their number and
//! length are bounded.

use std::rc::Rc;

/// Longest pattern, bytes; longer lines are passed over.
const MAX_PATTERN: usize = 1024;
/// Most patterns of one file; the rest is passed over.
const MAX_RULES: usize = 10_000;

/// The rules of one file.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    is_negated: bool,
    is_for_folders: bool,
    /// Compared with the whole path below its file's folder, not with the name alone.
    is_anchored: bool,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    /// `**`: any number of folders.
    Any,
    Glob(Vec<Token>),
}

#[derive(Debug)]
enum Token {
    Char(char),
    One,
    Star,
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Rules {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.len() <= MAX_PATTERN);
        Self(lines.filter_map(rule).take(MAX_RULES).collect())
    }

    /// What the last rule that fits says; none when none fits. `path` is below the file's folder.
    fn says(&self, path: &[&str], is_folder: bool) -> Option<bool> {
        let fits = |rule: &&Rule| {
            if rule.is_for_folders && !is_folder {
                return false;
            }
            match path.last() {
                Some(name) if !rule.is_anchored => parts_fit(&rule.parts, &[*name]),
                _ => parts_fit(&rule.parts, path),
            }
        };
        self.0.iter().rev().find(fits).map(|rule| !rule.is_negated)
    }
}

/// The rules of a folder and of those above it.
#[derive(Debug)]
pub(crate) struct Level {
    rules: Rules,
    /// Names in the path of its folder.
    depth: usize,
    above: Option<Rc<Level>>,
}

impl Level {
    pub(crate) fn new(text: &str, depth: usize, above: Option<Rc<Self>>) -> Rc<Self> {
        let rules = Rules::parse(text);
        Rc::new(Self {
            rules,
            depth,
            above,
        })
    }

    /// Whether something is ignored; the path is below the outermost folder.
    pub(crate) fn ignores(&self, path: &[&str], is_folder: bool) -> bool {
        let mut level = Some(self);
        while let Some(at) = level {
            let said = path
                .get(at.depth..)
                .and_then(|path| at.rules.says(path, is_folder));
            if let Some(said) = said {
                return said;
            }
            level = at.above.as_deref();
        }
        false
    }
}

fn rule(line: &str) -> Option<Rule> {
    let line = without_spaces_at_end(line.trim_end_matches('\r'));
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (is_negated, line) = match line.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (is_for_folders, line) = match line.strip_suffix('/') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let is_anchored = line.contains('/');
    let line = line.strip_prefix('/').unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let mut parts: Vec<Part> = Vec::new();
    for part in line.split('/') {
        match part {
            "**" if matches!(parts.last(), Some(Part::Any)) => {}
            "**" => parts.push(Part::Any),
            part => parts.push(Part::Glob(tokens(part))),
        }
    }
    if is_anchored && matches!(parts.last(), Some(Part::Any)) {
        // `a/**` is what is in `a`, not `a`.
        parts.push(Part::Glob(vec![Token::Star]));
    }
    Some(Rule {
        is_negated,
        is_for_folders,
        is_anchored,
        parts,
    })
}

fn without_spaces_at_end(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    let slashes = trimmed.bytes().rev().take_while(|&b| b == b'\\').count();
    if slashes % 2 == 1 && trimmed.len() < line.len() {
        return &line[..=trimmed.len()];
    }
    trimmed
}

fn tokens(part: &str) -> Vec<Token> {
    let chars: Vec<char> = part.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        match chars[at] {
            '*' if matches!(tokens.last(), Some(Token::Star)) => {}
            '*' => tokens.push(Token::Star),
            '?' => tokens.push(Token::One),
            '\\' if at + 1 < chars.len() => {
                at += 1;
                tokens.push(Token::Char(chars[at]));
            }
            '[' => match class(&chars[at + 1..]) {
                Some((class, length)) => {
                    tokens.push(class);
                    at += length;
                }
                None => tokens.push(Token::Char('[')),
            },
            other => tokens.push(Token::Char(other)),
        }
        at += 1;
    }
    tokens
}

/// A class of characters after its `[`, and its length with the `]`.
fn class(chars: &[char]) -> Option<(Token, usize)> {
    let is_negated = matches!(chars.first(), Some('!' | '^'));
    let start = usize::from(is_negated);
    let mut at = start;
    let mut ranges = Vec::new();
    loop {
        let mut from = *chars.get(at)?;
        if from == ']' && at > start {
            let class = Token::Class { is_negated, ranges };
            return Some((class, at + 1));
        }
        if from == '[' && chars.get(at + 1) == Some(&':') {
            let end = chars[at..].windows(2).position(|two| two == [':', ']']);
            if let Some(end) = end.filter(|end| *end > 1) {
                let name: String = chars[at + 2..at + end].iter().collect();
                ranges.extend(named(&name));
                at += end + 2;
                continue;
            }
        }
        if from == '\\' {
            at += 1;
            from = *chars.get(at)?;
        }
        let is_range =
            chars.get(at + 1) == Some(&'-') && chars.get(at + 2).is_some_and(|to| *to != ']');
        if is_range {
            ranges.push((from, chars[at + 2]));
            at += 3;
        } else {
            ranges.push((from, from));
            at += 1;
        }
    }
}

fn named(name: &str) -> Vec<(char, char)> {
    match name {
        "alnum" => vec![('a', 'z'), ('A', 'Z'), ('0', '9')],
        "alpha" => vec![('a', 'z'), ('A', 'Z')],
        "digit" => vec![('0', '9')],
        "lower" => vec![('a', 'z')],
        "upper" => vec![('A', 'Z')],
        "space" => vec![(' ', ' '), ('\t', '\r')],
        "xdigit" => vec![('0', '9'), ('a', 'f'), ('A', 'F')],
        _ => Vec::new(),
    }
}

/// Whether things fit a pattern in which some parts (`is_star`) stand for any number of things.
fn fits<P, T>(
    pattern: &[P],
    things: &[T],
    is_star: impl Fn(&P) -> bool,
    is_one: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    // Only the last star is ever tried again: what came before it fits already.
    let mut again = None;
    while t < things.len() {
        match pattern.get(p) {
            Some(part) if is_star(part) => {
                again = Some((p, t));
                p += 1;
            }
            Some(part) if is_one(part, &things[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, from)) = again else {
                    return false;
                };
                again = Some((star, from + 1));
                p = star + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(is_star)
}

fn parts_fit(parts: &[Part], path: &[&str]) -> bool {
    let is_star = |part: &Part| matches!(part, Part::Any);
    fits(parts, path, is_star, |part, name| match part {
        Part::Any => true,
        Part::Glob(tokens) => glob_fits(tokens, name),
    })
}

fn glob_fits(tokens: &[Token], name: &str) -> bool {
    let chars: Vec<char> = name.chars().collect();
    let is_star = |token: &Token| matches!(token, Token::Star);
    fits(tokens, &chars, is_star, |token, c| match token {
        Token::Char(wanted) => wanted == c,
        Token::One | Token::Star => true,
        Token::Class { is_negated, ranges } => {
            ranges.iter().any(|(from, to)| (from..=to).contains(&c)) != *is_negated
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(text: &str, path: &str) -> bool {
        let (path, is_folder) = match path.strip_suffix('/') {
            Some(path) => (path, true),
            None => (path, false),
        };
        let path: Vec<&str> = path.split('/').collect();
        Level::new(text, 0, None).ignores(&path, is_folder)
    }

    #[test]
    fn patterns_mean_what_git_means() {
        for (text, path, wanted) in [
            ("target", "a/target", true),
            ("target/", "target", false),
            ("target/", "a/target/", true),
            ("/target", "a/target", false),
            ("a/b", "a/b", true),
            ("a/b", "x/a/b", false),
            ("*.log", "x/y.log", true),
            ("*.log\n!keep.log", "keep.log", false),
            ("!keep.log\n*.log", "keep.log", true),
            ("**/foo", "a/b/foo", true),
            ("**/foo", "foo", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**", "a/", false),
            ("a/**", "a/x", true),
            ("a?c", "abc", true),
            ("a*c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]y", "]y", true),
            ("[[:digit:]]", "7", true),
            ("[a", "[a", true),
            ("\\!x", "!x", true),
            ("\\#x", "#x", true),
            ("# x", "# x", false),
            ("x  ", "x", true),
            ("x\\ ", "x ", true),
            ("x\r", "x", true),
            ("größe?", "größe1", true),
            ("/", "x", false),
            ("!", "x", false),
        ] {
            assert_eq!(ignored(text, path), wanted, "{text:?} {path}");
        }
    }

    #[test]
    fn a_folders_own_rules_go_before_those_above_it() {
        let above = Level::new("*.log\n/only-here", 0, None);
        let level = Level::new("!a.log", 1, Some(above));
        assert!(!level.ignores(&["sub", "a.log"], false));
        assert!(level.ignores(&["sub", "b.log"], false));
        assert!(!level.ignores(&["sub", "only-here"], false));
    }

    #[test]
    fn a_pattern_made_to_take_long_does_not() {
        let begun = std::time::Instant::now();
        let pattern = "*a".repeat(400) + "b";
        assert!(!ignored(&pattern, &"a".repeat(250)));
        let deep = "**/a/".repeat(150) + "b";
        assert!(!ignored(&deep, &["a"; 500].join("/")));
        let many = "*a*a*a*a*b\n".repeat(90_000);
        assert!(!ignored(&many, &"a".repeat(200)));
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
