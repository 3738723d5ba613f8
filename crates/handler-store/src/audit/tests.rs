//! The chain holds over files and daemons, and breaks when anything is changed.

use super::{AuditSizes, AuditWriter, Wanted, files, read, verify};
use handler_types::audit::{AuditVerdict, AuditWhat, GapPlace};
use proptest::prelude::*;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const SMALL: AuditSizes = AuditSizes {
    file_bytes: 600,
    files: 3,
};
const ROOMY: AuditSizes = AuditSizes {
    file_bytes: 600,
    files: 1000,
};

fn gap(missed: u64) -> AuditWhat {
    AuditWhat::Gap {
        missed,
        place: GapPlace::Filter,
    }
}

fn write(folder: &Path, sizes: AuditSizes, count: u64) -> AuditWriter {
    let mut writer = AuditWriter::open(folder, sizes).expect("open");
    for missed in 0..count {
        writer.append(7, vec![gap(missed)], false).expect("append");
    }
    writer
}

fn check(folder: &Path, writer: &AuditWriter) -> AuditVerdict {
    verify(folder, Some(writer.last())).expect("verify")
}

fn newest(folder: &Path) -> std::path::PathBuf {
    files::path(
        folder,
        *files::list(folder).expect("list").last().expect("file"),
    )
}

#[test]
fn the_chain_goes_on_over_files_and_writers_and_nobody_else_reads_it() {
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path().join("audit");
    drop(write(&folder, ROOMY, 5));
    let writer = write(&folder, ROOMY, 6);
    let verdict = check(&folder, &writer);
    assert!(verdict.ok && verdict.files > 1, "{verdict:?}");
    assert_eq!((verdict.first, verdict.last, verdict.records), (1, 11, 11));
    assert_eq!(verdict.missed, 10 + 15);
    let mode = |path: &Path| std::fs::metadata(path).expect("meta").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&newest(&folder))), (0o700, 0o600));
}

#[test]
fn the_oldest_files_go_and_a_line_tells_so() {
    let folder = tempfile::tempdir().expect("folder");
    let writer = write(folder.path(), SMALL, 60);
    let all = files::list(folder.path()).expect("list");
    assert_eq!(all.len(), SMALL.files);
    let verdict = check(folder.path(), &writer);
    assert!(verdict.ok && verdict.first > 1, "{verdict:?}");
    // Another one taken away by hand is found.
    std::fs::remove_file(files::path(folder.path(), all[0])).expect("remove");
    let verdict = check(folder.path(), &writer);
    let reason = verdict.broken.expect("broken").reason;
    assert!(reason.contains("no line tells"), "{reason}");
}

#[test]
fn a_line_that_was_cut_off_is_put_aside_and_the_chain_says_so() {
    let folder = tempfile::tempdir().expect("folder");
    let before = write(folder.path(), ROOMY, 2).last().0;
    let torn = br#"{"seq":3,"t":7,"pr"#;
    let mut file = std::fs::File::options()
        .append(true)
        .open(newest(folder.path()))
        .expect("open");
    file.write_all(torn).expect("write");
    assert!(!verify(folder.path(), None).expect("verify").ok);
    let writer = write(folder.path(), ROOMY, 1);
    let verdict = check(folder.path(), &writer);
    assert!(verdict.ok, "{verdict:?}");
    assert_eq!(verdict.last, before + 2);
    let all = Wanted {
        most: 10,
        ..Wanted::default()
    };
    let (records, _) = read(folder.path(), &all, None).expect("read");
    assert!(matches!(records[2].what, AuditWhat::Torn { bytes: 18, .. }));
    let aside = std::fs::read(files::torn(folder.path(), 3)).expect("kept");
    assert_eq!(aside, torn);
}

#[test]
fn the_first_line_that_is_wrong_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let sizes = AuditSizes {
        file_bytes: 1 << 20,
        files: 2,
    };
    let writer = write(folder.path(), sizes, 9);
    let path = newest(folder.path());
    let text = std::fs::read_to_string(&path).expect("read");
    // The fifth line tells of four; the sixth refers to it.
    std::fs::write(&path, text.replacen("\"missed\":4", "\"missed\":3", 1)).expect("write");
    let broken = check(folder.path(), &writer).broken.expect("broken");
    assert_eq!(broken.line, 6);
    // Lines taken off the end.
    let lines: Vec<&str> = text.lines().take(7).collect();
    std::fs::write(&path, lines.join("\n") + "\n").expect("write");
    let broken = check(folder.path(), &writer).broken.expect("broken");
    assert!(broken.reason.contains("wrote last"), "{broken:?}");
}

#[test]
fn numbers_at_their_limits_are_broken_and_no_more() {
    for seq in [0, u64::MAX] {
        let folder = tempfile::tempdir().expect("folder");
        let line = super::line::write(seq, 7, &super::line::zero(), gap(u64::MAX)).expect("line");
        std::fs::write(files::path(folder.path(), seq), line + "\n").expect("write");
        let writer = write(folder.path(), ROOMY, 3);
        assert!(!check(folder.path(), &writer).ok, "{seq}");
    }
}

#[test]
fn pages_and_places_go_on_where_they_ended() {
    let folder = tempfile::tempdir().expect("folder");
    let mut writer = write(folder.path(), ROOMY, 20);
    let mut wanted = Wanted {
        most: 7,
        ..Wanted::default()
    };
    let mut seen = Vec::new();
    loop {
        let (records, _) = read(folder.path(), &wanted, None).expect("read");
        seen.extend(records.iter().map(|record| record.seq));
        let Some(last) = records.last() else { break };
        wanted.after = last.seq;
    }
    assert_eq!(seen, (1..=20).collect::<Vec<_>>());
    let last = Wanted {
        last: true,
        most: 3,
        ..Wanted::default()
    };
    let (records, place) = read(folder.path(), &last, None).expect("read");
    assert_eq!(
        records.iter().map(|r| r.seq).collect::<Vec<_>>(),
        [18, 19, 20]
    );
    for missed in 0..9 {
        writer.append(7, vec![gap(missed)], false).expect("append");
    }
    let more = Wanted {
        most: 100,
        ..Wanted::default()
    };
    let (records, place) = read(folder.path(), &more, Some(place)).expect("read");
    assert_eq!(records.len(), 9);
    assert!(
        read(folder.path(), &more, Some(place))
            .expect("read")
            .0
            .is_empty()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn one_changed_byte_anywhere_is_found(lines in 2u64..30, at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let folder = tempfile::tempdir().expect("folder");
        let writer = write(folder.path(), SMALL, lines);
        let all = files::list(folder.path()).expect("list");
        let path = files::path(folder.path(), all[at.index(all.len())]);
        let mut bytes = std::fs::read(&path).expect("read");
        prop_assume!(!bytes.is_empty());
        let place = at.index(bytes.len());
        bytes[place] ^= flip;
        std::fs::write(&path, bytes).expect("write");
        let verdict = check(folder.path(), &writer);
        prop_assert!(!verdict.ok && verdict.broken.is_some());
    }

    #[test]
    fn however_the_end_is_cut_the_log_is_taken_up(lines in 1u64..12, cut in any::<prop::sample::Index>()) {
        let folder = tempfile::tempdir().expect("folder");
        drop(write(folder.path(), ROOMY, lines));
        let path = newest(folder.path());
        let bytes = std::fs::read(&path).expect("read");
        std::fs::write(&path, &bytes[..cut.index(bytes.len() + 1)]).expect("write");
        let writer = write(folder.path(), ROOMY, 2);
        prop_assert!(check(folder.path(), &writer).ok);
    }
}
