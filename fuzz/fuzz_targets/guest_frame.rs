//! The coverage fuzzer of `handler_fuzz`'s target `guest_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| handler_fuzz::run("guest_frame", data));
