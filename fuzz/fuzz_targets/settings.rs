//! The coverage fuzzer of `handler_fuzz`'s target `settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("settings", data));
