//! `gsplit doctor`: its findings about the machine and a launcher.

use std::fs;

use serde_json::Value;

use crate::support::{command, scratch};

#[test]
fn doctor_knows_the_machine_and_what_to_do() {
    let folder = &*scratch();
    let variables = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "a"),
        ("MASTER_PORT", "9"),
    ];
    let said = |args: &str| command(folder, args).envs(variables).output().unwrap().stdout;
    let found: Value = serde_json::from_slice(&said("doctor --json")).unwrap();
    assert_eq!(found["launcher"]["name"], "torchrun", "{found}");
    assert_eq!(
        (found["launcher"]["rank"].as_u64(), found["launcher"]["size"].as_u64()),
        (Some(1), Some(4))
    );
    assert_eq!(found["launcher"]["rendezvous"], "a:10");
    assert!(found["host"]["threads"].as_u64().unwrap() > 0, "{found}");
    assert!(found["host"]["memory_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
    assert_eq!(found["training"]["works"], cfg!(feature = "train"), "{found}");
    let products = found["products"].as_array().map_or(0, Vec::len);
    assert_eq!(products, if cfg!(feature = "train") { 2 } else { 0 }, "{found}");
    for library in ["driver", "nvrtc", "nccl"] {
        let library = &found[library];
        let there = library["path"].as_str().is_some_and(|path| fs::exists(path).unwrap());
        assert!(
            there || library["missing"].as_str().is_some_and(|error| error.contains(": ")),
            "{found}"
        );
    }
    let (gpus, advice) = (found["gpus"].as_array().unwrap(), found["advice"].as_array().unwrap());
    assert!(!gpus.is_empty() || !advice.is_empty(), "{found}");
    assert_eq!(found["links"].as_array().unwrap().len(), gpus.len());
    let text = String::from_utf8(said("doctor")).unwrap();
    for word in ["processor", "memory", "training", "driver", "NVRTC", "NCCL", "launcher"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(text.contains("To do"), !advice.is_empty(), "{text}");
}
