#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gsplit_fuzz::trained::run("checkpoint", bytes);
});
