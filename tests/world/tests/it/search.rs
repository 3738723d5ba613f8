//! Looking for a planted key: in files, arguments and memory, in plain and in the spellings that messages have.

use crate::support::show;
use anyhow::Context as _;
use memchr::memmem;
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A key of 48 characters, and what it looks like in Basic credentials, whichever way it falls.
pub(crate) fn plant() -> (String, Vec<String>) {
    let value = format!("sk-planted-{}", &handler_base::random::hex(19)[..37]);
    assert_eq!(value.len(), 48);
    let wanted = spellings(&value);
    (value, wanted)
}

/// What a value looks like in plain, in base64 (whichever way it falls, both alphabets), percent-encoded and in JSON.
pub(crate) fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    // At each of the three places of a group, without the ends that neighbours reach into.
    for before in ["", "u", "uu"] {
        let coded = base64(format!("{before}{value}").as_bytes());
        let inner = coded[4..coded.len() - 4].to_owned();
        all.push(inner.replace('+', "-").replace('/', "_"));
        all.push(inner);
    }
    let percent = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || "-._~".contains(letter) => letter.to_string(),
        letter => format!("%{:02X}", u32::from(letter)),
    };
    let percent: String = value.chars().map(percent).collect();
    all.push(
        value
            .chars()
            .map(|letter| format!("%{:02x}", u32::from(letter)))
            .collect(),
    );
    let json = serde_json::Value::String(value.to_owned()).to_string();
    let json = json[1..json.len() - 1].to_owned();
    all.push(json.replace('/', "\\/"));
    all.extend([percent.to_ascii_lowercase(), percent, json]);
    all.sort();
    all.dedup();
    all
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |number: u32| char::from(DIGITS[(number & 63) as usize]);
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let is_filler = place > group.len();
            text.push(if is_filler {
                '='
            } else {
                digit(bits >> (18 - 6 * place))
            });
        }
    }
    text
}

pub(crate) fn holds(bytes: &[u8], wanted: &[String]) -> bool {
    wanted
        .iter()
        .any(|text| memmem::find(bytes, text.as_bytes()).is_some())
}

/// All files below a folder that hold one of the texts, unread ones as errors.
pub(crate) fn search_files(
    folder: &Path,
    wanted: &[String],
    found: &mut Vec<String>,
    read: &mut usize,
) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?;
        if kind.is_dir() {
            search_files(&path, wanted, found, read)?;
        } else if kind.is_file() {
            *read += 1;
            if holds(&std::fs::read(&path)?, wanted) {
                found.push(path.display().to_string());
            }
        }
        if holds(path.as_os_str().as_encoded_bytes(), wanted) {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

/// Looks at the arguments of every process of the machine again and again, until told to stop.
pub(crate) struct ArgvWatch {
    stop: Arc<AtomicBool>,
    looks: Arc<Mutex<(usize, BTreeSet<String>)>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ArgvWatch {
    /// Starts looking.
    pub(crate) fn start(wanted: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(Mutex::new((0, BTreeSet::new())));
        let (until, into) = (stop.clone(), looks.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
                for entry in entries {
                    let argv = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    if holds(&argv, &wanted) {
                        into.lock()
                            .expect("no panic")
                            .1
                            .insert(show(&argv).replace('\0', " "));
                    }
                }
                into.lock().expect("no panic").0 += 1;
            }
        });
        Self {
            stop,
            looks,
            thread: Some(thread),
        }
    }

    /// How often it looked, and what it saw.
    pub(crate) fn finish(mut self) -> (usize, BTreeSet<String>) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
        self.looks.lock().expect("no panic").clone()
    }
}

/// Whether the writable memory of a process has one of the texts.
pub(crate) fn memory_holds(pid: i32, wanted: &[String]) -> anyhow::Result<bool> {
    Ok(memory_with(pid, wanted)?.is_some())
}

/// The first region of a process's writable memory that has one of the texts.
pub(crate) fn memory_with(pid: i32, wanted: &[String]) -> anyhow::Result<Option<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').context("a region")?;
        let (from, to) = range.split_once('-').context("a range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        // What is mapped from a file and cannot be written holds no secret.
        if !rest.starts_with("rw") || to - from > 256 << 20 {
            continue;
        }
        let mut region = Vec::new();
        memory.seek(SeekFrom::Start(from))?;
        if (&mut memory)
            .take(to - from)
            .read_to_end(&mut region)
            .is_ok()
            && holds(&region, wanted)
        {
            return Ok(Some(line.to_owned()));
        }
    }
    Ok(None)
}
