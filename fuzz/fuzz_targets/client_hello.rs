//! The coverage fuzzer of `handler_fuzz`'s target `client_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("client_hello", data));
