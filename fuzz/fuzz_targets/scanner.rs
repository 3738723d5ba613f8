//! The coverage fuzzer of `handler_fuzz`'s target `scanner`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("scanner", data));
