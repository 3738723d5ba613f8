//! The coverage fuzzer of `handler_fuzz`'s target `allow_entry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("allow_entry", data));
