#![no_main]

libfuzzer_sys::fuzz_target!(init: gsplit_fuzz::tolerate_guarded_decoders(), |bytes: &[u8]| {
    gsplit_fuzz::run("ogb_links", bytes);
});
