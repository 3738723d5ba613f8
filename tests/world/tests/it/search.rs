//! Looking for a planted key: in files, arguments and memory, in plain and as Basic credentials have it.

use crate::support::show;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A key of 48 characters, and what it looks like in Basic credentials, whichever way it falls.
pub(crate) fn plant() -> (String, Vec<String>) {
    let value = format!("sk-planted-{}", &handler_base::random::hex(19)[..37]);
    assert_eq!(value.len(), 48);
    let encoded = |text: &str| base64(text.as_bytes());
    // Base64 of the value at each of the three places of a group, without the ends that neighbours reach into.
    let forms = ["", "u", "uu"].map(|before| {
        let all = encoded(&format!("{before}{value}"));
        all[4..all.len() - 4].to_owned()
    });
    let mut wanted = vec![value.clone()];
    wanted.extend(forms);
    (value, wanted)
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
    wanted.iter().any(|text| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
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

/// Readable memory of a process, region by region.
pub(crate) fn memory_holds(pid: i32, wanted: &[String]) -> anyhow::Result<bool> {
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
            return Ok(true);
        }
    }
    Ok(false)
}
