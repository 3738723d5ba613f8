//! The coverage fuzzer of `handler_fuzz`'s target `http2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("http2", data));
