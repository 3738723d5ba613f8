//! Event logs when things go wrong: crashes, full disks, damage.

use crate::children::{child, part};
use crate::event_log::{event, index_of, seqs, text};
use handler_store::log::{EventLog, LogError};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temp folder");
    let path = dir.path().join("events.ndjson");
    (dir, path)
}

fn filled(path: &Path, lines: u64) -> Vec<u8> {
    let log = EventLog::open(path).expect("open");
    log.append_batch(&(1..=lines).map(text).collect::<Vec<_>>())
        .expect("batch");
    drop(log);
    std::fs::read(path).expect("file")
}

#[test]
fn a_torn_last_line_is_cut_off_wherever_it_was_torn() {
    let (_dir, path) = temp();
    let whole = filled(&path, 3);
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .expect("lines")
        + 1;
    for cut in last..whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("torn");
        let log = EventLog::open(&path).expect("open");
        assert_eq!(log.last_seq(), 2, "cut at {cut}");
        assert_eq!(log.append(&text(3)).expect("append"), 3);
        assert_eq!(seqs(&log, 0), [1, 2, 3]);
    }
    // The file grew and its content never came, as after a power cut.
    let mut grown = whole.clone();
    grown.extend_from_slice(&[0; 200_000]);
    std::fs::write(&path, &grown).expect("grown");
    let log = EventLog::open(&path).expect("open");
    assert_eq!(log.last_seq(), 3);
    drop(log);
    assert_eq!(std::fs::read(&path).expect("file"), whole);
    std::fs::write(&path, b"{\"seq\":1,\"t\":\"20").expect("only a torn line");
    assert_eq!(EventLog::open(&path).expect("open").last_seq(), 0);
}

#[test]
fn a_damaged_log_is_refused_and_kept() {
    let (_dir, path) = temp();
    let whole = filled(&path, 2000);
    let variants: [Vec<u8>; 3] = [
        [whole.as_slice(), b"no line of ours\n"].concat(),
        [whole.as_slice(), b"{\"seq\":7,\"t\":\"x\"}\n"].concat(),
        {
            let mut bytes = whole.clone();
            let at = bytes.len() / 2;
            let line = bytes[at..].iter().position(|b| *b == b'\n').expect("line") + at + 3;
            bytes[line] = b'#';
            bytes
        },
    ];
    for bytes in variants {
        std::fs::write(&path, &bytes).expect("damage");
        std::fs::remove_file(index_of(&path)).ok();
        let error = EventLog::open(&path).expect_err("damaged");
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("events.ndjson"), "{error}");
        assert_eq!(std::fs::read(&path).expect("file"), bytes);
    }
}

#[test]
fn a_closed_log_opens_again_at_once_while_programs_are_started() {
    let (_dir, path) = temp();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // A group of its own makes the standard library fork, as the daemon's children do.
                use std::os::unix::process::CommandExt as _;
                let mut program = std::process::Command::new("true");
                program.process_group(0).status().expect("true runs");
            }
        });
        let opened: Result<Vec<_>, LogError> =
            (0..2000).map(|_| EventLog::open(&path).map(drop)).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.expect("nobody else has it open");
    });
}

const KILLED: &str = "event_log_faults::a_killed_writer_loses_no_line_it_told_about";

#[test]
fn a_killed_writer_loses_no_line_it_told_about() {
    if let Some(path) = part("append") {
        let log = EventLog::open(&path).expect("open");
        let mut out = std::io::stdout().lock();
        for n in log.last_seq() + 1.. {
            let seq = log.append(&text(n)).expect("append");
            writeln!(out, "told {seq}").expect("parent");
            out.flush().expect("parent");
        }
    }
    let (_dir, path) = temp();
    let mut told = 0;
    for round in 1..=5 {
        let mut writer = child(KILLED, "append", &path, "").spawn().expect("child");
        let lines = BufReader::new(writer.stdout.take().expect("stdout")).lines();
        let target = told + round * 37;
        for line in lines {
            let line = line.expect("line");
            // The test harness prints its own words in front of the first line.
            let Some((_, seq)) = line.split_once("told ") else {
                continue;
            };
            told = seq.parse().expect("number");
            if told >= target {
                writer.kill().expect("kill -9");
            }
        }
        writer.wait().expect("reaped");
        assert!(told >= target, "the writer ended by itself at {told}");
        let log = EventLog::open(&path).expect("open after the kill");
        assert!(log.last_seq() >= told, "{} < {told}", log.last_seq());
        assert_eq!(seqs(&log, 0).len() as u64, log.last_seq());
        told = log.last_seq();
    }
}

/// Appends until there is no room, then checks that the log is whole and can be used again.
fn fill_then_recover(path: &Path, make_room: impl FnOnce()) {
    let log = EventLog::open(path).expect("open");
    let large = event(json!({"kind": "text", "text": "x".repeat(3000)}));
    let error = loop {
        if let Err(error) = log.append_batch(&[large.clone(), large.clone()]) {
            break error;
        }
    };
    assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
    let last = log.last_seq();
    assert!(
        last > 0 && last.is_multiple_of(2),
        "a batch is written whole: {last}"
    );
    let bytes = std::fs::metadata(path).expect("meta").len();
    assert_eq!(bytes, log.end().bytes, "the torn line was cut off");
    assert_eq!(seqs(&log, 0).len() as u64, last);
    assert!(log.append_batch(&[large.clone(), large.clone()]).is_err());
    assert_eq!(log.last_seq(), last);
    make_room();
    assert_eq!(log.append(&large).expect("room again"), last + 1);
    drop(log);
    let log = EventLog::open(path).expect("open again");
    assert_eq!(seqs(&log, 0).len() as u64, last + 1);
}

const LIMITED: &str = "event_log_faults::a_log_survives_the_largest_file_size";

#[test]
fn a_log_survives_the_largest_file_size() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    if let Some(path) = part("limited") {
        fill_then_recover(&path, || {
            let mut limit = getrlimit(Resource::Fsize);
            limit.current = limit.maximum;
            setrlimit(Resource::Fsize, limit).expect("limit lifted");
        });
        return;
    }
    let (_dir, path) = temp();
    // Soft limit only; the signal that comes with it is ignored, as a daemon would.
    let shell = "trap '' XFSZ; ulimit -S -f 100;";
    let done = child(LIMITED, "limited", &path, shell)
        .output()
        .expect("child");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(std::fs::metadata(&path).expect("meta").len() > 40_000);
}

const FULL: &str = "event_log_faults::a_log_survives_a_full_disk";

#[test]
fn a_log_survives_a_full_disk() {
    if let Some(mount) = part("full") {
        let ballast = mount.join("ballast");
        std::fs::write(&ballast, vec![0; 64 * 1024]).expect("ballast");
        fill_then_recover(&mount.join("events.ndjson"), || {
            std::fs::remove_file(&ballast).expect("room");
        });
        return;
    }
    let dir = tempfile::tempdir().expect("temp folder");
    let mount = "mount -t tmpfs -o size=300k none";
    let probe = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{mount} \"$0\"")])
        .arg(dir.path())
        .output();
    if !probe.is_ok_and(|done| done.status.success()) {
        // Not by a macro: those are not shown for a test that passes.
        writeln!(
            std::io::stderr(),
            "SKIP {FULL}: this machine lets us mount no small disk (unshare -rm)"
        )
        .expect("stderr");
        return;
    }
    let shell = format!(
        "if [ -z \"$INNER\" ]; then INNER=1 exec unshare -rm sh -c '{mount} {0} && exec \"$0\" \"$@\"' \"$0\" \"$@\"; fi;",
        dir.path().display()
    );
    let done = child(FULL, "full", dir.path(), &shell)
        .output()
        .expect("child");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
