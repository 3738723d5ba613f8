//! Every committed input, and changes of it, on every target. `HANDLER_FUZZ_ROUNDS` says how many changes of each.

use handler_fuzz::mutate::{Chance, mutate};
use handler_fuzz::{TARGETS, Target};
use std::path::Path;

/// Changes of each input unless told otherwise.
const ROUNDS: usize = 60;
/// The same changes on every run.
const SEED: u64 = 0x4a17_d1e5;

fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let entries = std::fs::read_dir(&folder).expect("every target has a corpus");
    let mut all: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read(path).expect("an input"))
        })
        .collect();
    all.sort();
    assert!(!all.is_empty(), "{}: nothing in its corpus", target.name);
    all
}

/// Runs one input; what does not hold is told with the bytes, so that they can be kept in the corpus.
fn check(target: &Target, from: &str, input: &[u8]) -> Result<(), String> {
    let held = std::panic::catch_unwind(|| (target.run)(input));
    held.map_err(|_| format!("{}, made of {from}: {}", target.name, input.escape_ascii()))
}

fn rounds() -> usize {
    let told = std::env::var("HANDLER_FUZZ_ROUNDS").ok();
    told.map_or(ROUNDS, |text| {
        text.parse().expect("HANDLER_FUZZ_ROUNDS is a number")
    })
}

fn replay(target: &Target) -> Vec<String> {
    let inputs = corpus(target);
    let mut chance = Chance::new(SEED);
    let mut wrong = Vec::new();
    for (name, input) in &inputs {
        wrong.extend(check(target, name, input).err());
        for _ in 0..rounds() {
            let other = &inputs[chance.below(inputs.len())].1;
            let changed = mutate(input, other, &mut chance);
            wrong.extend(check(target, name, &changed).err());
        }
    }
    wrong
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let target = TARGETS.iter().find(|target| target.name == stringify!($name));
            let wrong = replay(target.expect("a target"));
            assert!(wrong.is_empty(), "{} inputs:\n{}", wrong.len(), wrong.join("\n"));
        })*

        #[test]
        fn every_target_is_replayed_and_has_a_fuzzer() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
            let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml");
            for name in names {
                let program = fuzz.join(format!("fuzz_targets/{name}.rs"));
                let program = std::fs::read_to_string(program).expect(name);
                assert!(program.contains(&format!("run(\"{name}\", data)")), "{name}");
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            }
        }
    };
}

replays! {
    allow_entry client_hello codings guest_frame http1 http2 scanner settings tar target terminal terminal_snapshot
    websocket zip
}
