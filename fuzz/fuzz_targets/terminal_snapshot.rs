//! The coverage fuzzer of `handler_fuzz`'s target `terminal_snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("terminal_snapshot", data));
