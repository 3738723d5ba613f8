//! What programs tell about themselves by operating system commands: title, working folder, shell marks, state.
//!
//! All of it is claimed by the sandbox: bounded, without control characters, for showing only.

use serde::{Deserialize, Serialize};

/// Longest title kept, bytes.
const MAX_TITLE: usize = 512;
/// Longest folder kept, bytes.
const MAX_CWD: usize = 4096;
/// Longest state document kept, bytes.
const MAX_STATE: usize = 16 * 1024;
/// Titles kept aside by programs that want theirs back.
const MAX_TITLES: usize = 8;

/// What was told so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OscState {
    /// Window title (OSC 0, 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Working folder inside the sandbox (OSC 7), absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Marks of the shell (OSC 133).
    pub shell: ShellMarks,
    /// A JSON object told by a shell or an agent's hook (OSC 7337).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<serde_json::Value>,
    /// The last notice for the user (OSC 9, 777).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// How often the bell rang.
    pub bells: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    titles: Vec<Option<String>>,
}

/// Where the shell is between prompt and command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShellMarks {
    /// A prompt is shown and the shell waits.
    pub at_prompt: bool,
    /// A command runs.
    pub running: bool,
    /// Exit code of the last command that told one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<i32>,
    /// Commands begun so far.
    pub commands: u64,
}

impl OscState {
    /// Takes a command: what stands between its introducer and its end.
    pub(crate) fn take(&mut self, body: &[u8]) {
        let (number, rest) = split(body);
        match number {
            b"0" | b"2" => self.title = Some(clean(rest, MAX_TITLE)).filter(|t| !t.is_empty()),
            b"7" => self.cwd = folder(rest).or(self.cwd.take()),
            b"9" if !rest.starts_with(b"4;") => self.notice = Some(clean(rest, MAX_TITLE)),
            b"133" => self.shell.take(rest),
            b"777" => {
                if let Some(text) = rest.strip_prefix(b"notify;") {
                    self.notice = Some(clean(text, MAX_TITLE));
                }
            }
            b"7337" => self.state = state(rest).or(self.state.take()),
            _ => {}
        }
    }

    /// Bytes that give another terminal these titles.
    pub(crate) fn write_titles(&self, out: &mut Vec<u8>) {
        let kept = self.titles.iter().map(|title| (title, "\x1b[22;2t"));
        for (title, then) in kept.chain([(&self.title, "")]) {
            let title = title.as_deref().unwrap_or_default();
            out.extend_from_slice(format!("\x1b]2;{title}\x1b\\{then}").as_bytes());
        }
    }

    /// Keeps the title aside (CSI 22 t).
    pub(crate) fn push_title(&mut self) {
        if self.titles.len() < MAX_TITLES {
            self.titles.push(self.title.clone());
        }
    }

    /// Takes the title back (CSI 23 t).
    pub(crate) fn pop_title(&mut self) {
        if let Some(title) = self.titles.pop() {
            self.title = title;
        }
    }
}

impl ShellMarks {
    fn take(&mut self, mark: &[u8]) {
        let (kind, rest) = split(mark);
        match kind {
            b"A" => {
                self.at_prompt = true;
                self.running = false;
            }
            b"B" => self.at_prompt = true,
            b"C" => {
                self.at_prompt = false;
                self.running = true;
                self.commands += 1;
            }
            b"D" => {
                self.running = false;
                let code = split(rest).0;
                self.last_exit = std::str::from_utf8(code).ok().and_then(|c| c.parse().ok());
            }
            _ => {}
        }
    }
}

fn split(body: &[u8]) -> (&[u8], &[u8]) {
    match body.iter().position(|b| *b == b';') {
        Some(at) => (&body[..at], &body[at + 1..]),
        None => (body, &[]),
    }
}

/// Text without control characters, cut at a character.
fn clean(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(limit * 4)]);
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > limit {
            break;
        }
        out.push(c);
    }
    out
}

/// The path of a `file://host/path` address, or a bare absolute path.
fn folder(address: &[u8]) -> Option<String> {
    let path = match address.strip_prefix(b"file://") {
        Some(rest) => &rest[rest.iter().position(|b| *b == b'/')?..],
        None => address,
    };
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| hex(after)).flatten();
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    let path = clean(&out, MAX_CWD);
    path.starts_with('/').then_some(path)
}

fn hex(two: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(two.get(..2)?).ok()?;
    u8::from_str_radix(text, 16).ok()
}

fn state(bytes: &[u8]) -> Option<serde_json::Value> {
    if bytes.len() > MAX_STATE {
        return None;
    }
    serde_json::from_slice(bytes)
        .ok()
        .filter(serde_json::Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_folders_and_marks_are_read() {
        let mut osc = OscState::default();
        osc.take("2;a \u{7f}title ü".as_bytes());
        osc.take(b"7;file://host/home/a%20b");
        osc.take(b"133;A");
        osc.take(b"133;C");
        assert!(osc.shell.running && !osc.shell.at_prompt);
        osc.take(b"133;D;127");
        osc.take(b"7337;{\"branch\":\"main\"}");
        osc.take(b"7337;not json");
        assert_eq!(osc.title.as_deref(), Some("a title ü"));
        assert_eq!(osc.cwd.as_deref(), Some("/home/a b"));
        assert_eq!(osc.shell.last_exit, Some(127));
        assert_eq!(osc.state.as_ref().expect("state")["branch"], "main");
        osc.take(b"7;file://host");
        osc.take(b"7;%zz");
        assert_eq!(osc.cwd.as_deref(), Some("/home/a b"));
    }

    #[test]
    fn a_title_kept_aside_comes_back() {
        let mut osc = OscState::default();
        osc.take(b"0;shell");
        osc.push_title();
        osc.take(b"0;editor");
        osc.pop_title();
        assert_eq!(osc.title.as_deref(), Some("shell"));
        osc.pop_title();
        assert_eq!(osc.title.as_deref(), Some("shell"));
    }
}
