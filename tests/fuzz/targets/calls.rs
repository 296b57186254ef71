#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podium_tests::fuzz::calls::run(input));
