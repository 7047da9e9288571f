//! `gsplit doctor`: its findings about the machine, a launcher and ranks over loopback.

use std::fs;

use serde_json::Value;

use crate::support::{command, scratch};

#[test]
fn doctor_knows_the_machine_and_what_to_do() {
    let folder = &*scratch();
    let variables =
        [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "9")];
    let said = |args: &str| command(folder, args).envs(variables).output().unwrap().stdout;
    let found: Value = serde_json::from_slice(&said("doctor --json")).unwrap();
    assert_eq!(found["launcher"]["name"], "torchrun", "{found}");
    assert_eq!((found["launcher"]["rank"].as_u64(), found["launcher"]["size"].as_u64()), (Some(1), Some(4)));
    assert_eq!(found["launcher"]["rendezvous"], "a:10");
    assert!(found["host"]["own_namespaces"].is_array(), "{found}");
    assert!(found["host"]["threads"].as_u64().unwrap() > 0, "{found}");
    assert!(found["host"]["memory_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
    assert_eq!(found["training"]["works"], cfg!(feature = "train"), "{found}");
    let products = found["products"].as_array().map_or(0, Vec::len);
    assert_eq!(products, if cfg!(feature = "train") { 2 } else { 0 }, "{found}");
    assert_eq!(found["loopback"].is_null(), !cfg!(feature = "train"), "{found}");
    for library in ["driver", "nvrtc", "nccl"] {
        let library = &found[library];
        let there = library["path"].as_str().is_some_and(|path| fs::exists(path).unwrap());
        assert!(there || library["missing"].as_str().is_some_and(|error| error.contains(": ")), "{found}");
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

#[cfg(feature = "train")]
#[test]
fn doctor_tries_ranks_over_loopback() {
    let folder = &*scratch();
    let tried = |interface: &str| {
        let doctor = command(folder, "doctor --json").env("GLOO_SOCKET_IFNAME", interface).output().unwrap();
        assert!(doctor.status.success(), "training in one process works");
        serde_json::from_slice::<Value>(&doctor.stdout).unwrap()
    };
    let found = &tried("lo")["loopback"];
    assert!(found["bytes_per_second"].as_f64().is_some_and(|rate| rate > 1e6), "{found}");
    assert_eq!(found["interface"], "lo");
    let found = tried("nope");
    let problem = found["loopback"]["problem"].as_str().unwrap();
    assert!(problem.starts_with("GLOO_SOCKET_IFNAME=nope: ") && problem.lines().count() == 1, "{problem}");
    let advice = found["advice"].as_array().unwrap();
    assert!(advice.iter().any(|line| line.as_str().is_some_and(|line| line.contains(problem))), "{found}");
}
