//! The coverage fuzzer of `handler_fuzz`'s target `websocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("websocket", data));
