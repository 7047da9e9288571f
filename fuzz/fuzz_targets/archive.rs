#![no_main]

libfuzzer_sys::fuzz_target!(init: gsplit_fuzz::convert::tolerate_guarded_decoders(), |bytes: &[u8]| {
    gsplit_fuzz::convert::run("archive", bytes);
});
