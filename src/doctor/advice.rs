//! Advice about missing or contradicting parts of this machine's set-up.

use std::fs;
use std::path::{Path, PathBuf};

use gsplit_kernels::{CudaLibrary, CudaSurvey, GpuError, GpuFacts};
use gsplit_preprocess::memory::shown;

use gsplit::launch::{ADDRESS_OF, Launch, Told};

use super::{OnGpu, Training};

/// Shared memory that NCCL may use per GPU whose messages go through the host.
const SHM_OF_A_GPU: u64 = 64 << 20;
/// Oldest GPUs that NVRTC 13 compiles for.
const OLDEST: (u32, u32) = (7, 5);

/// One line for each missing part.
pub fn advice(survey: &CudaSurvey, gpus: &[OnGpu<'_>], training: &Training) -> Vec<String> {
    let mut lines = Vec::new();
    if let Training::Fails(reason) = training {
        lines.push(format!("training: {reason}"));
    }
    lines.extend(no_gpus(survey));
    if gpus.is_empty() {
        return lines;
    }
    lines.extend(
        [&survey.compiler, &survey.nccl].into_iter().filter_map(|found| found.as_ref().err()).map(ToString::to_string),
    );
    let version = |found: &Result<CudaLibrary, GpuError>| found.as_ref().ok().and_then(|library| library.version);
    if let (Some(driver), Some(compiler)) = (version(&survey.driver), version(&survey.compiler)) {
        lines.extend(too_new(compiler, driver));
        if compiler.0 >= 13 {
            lines.extend(gpus.iter().filter(|gpu| gpu.facts.compute_capability < OLDEST).map(|gpu| {
                format!(
                    "GPU {}: NVRTC 13 does not know it; use PyTorch for CUDA 12, which brings NVRTC 12",
                    gpu.ordinal
                )
            }));
        }
    }
    lines.extend(gpus.iter().filter_map(|gpu| Some(format!("GPU {}: {}", gpu.ordinal, gpu.measured.as_ref().err()?))));
    lines.extend(gpus.iter().filter_map(|gpu| odd(gpu.facts).map(|line| format!("GPU {}: {line}", gpu.ordinal))));
    lines
}

/// Advice where the driver shows no GPU.
fn no_gpus(survey: &CudaSurvey) -> Option<String> {
    if survey.driver.is_err() {
        let devices = nvidia_devices(Path::new("/sys/bus/pci/devices"));
        return Some(no_driver(devices, Path::new("/proc/driver/nvidia")));
    }
    match &survey.gpus {
        Err(error) => {
            Some(format!("GPUs: {error}; see whether `nvidia-smi` works, and whether CUDA_VISIBLE_DEVICES hides them"))
        }
        Ok(found) => found.is_empty().then(|| "GPUs: none; CUDA_VISIBLE_DEVICES may hide them".to_string()),
    }
}

/// The reason why none of `gpus` can be used; `None` if one can.
pub fn no_gpu(survey: &CudaSurvey, gpus: &[OnGpu<'_>]) -> Option<String> {
    let unusable = |gpu: &OnGpu<'_>| Some(format!("GPU {}: {}", gpu.ordinal, gpu.measured.as_ref().err()?));
    match gpus.iter().map(unusable).collect::<Option<Vec<String>>>()?.into_iter().next() {
        Some(why) => Some(why),
        None => no_gpus(survey),
    }
}

/// Advice about a GPU that lacks something.
fn odd(facts: &GpuFacts) -> Option<String> {
    match facts {
        GpuFacts { name, .. } if name.contains("MIG ") => Some(
            "it is a part of a GPU (MIG): such parts do not reach each other, and NCCL joins no two of them"
                .to_string(),
        ),
        _ => None,
    }
}

/// Advice where `bytes` of shared memory are too few for this number of `gpus`.
pub fn little_shm(bytes: u64, gpus: usize) -> Option<String> {
    let needed = SHM_OF_A_GPU * gpus as u64;
    (gpus > 1 && bytes < needed).then(|| {
        format!(
            "shared memory: /dev/shm has {}, processes with {gpus} GPUs may need {}: start the container with `--shm-size=1g`",
            shown(bytes),
            shown(needed)
        )
    })
}

/// Advice for a process in a container (with its `own` namespaces) that is one of more ranks than it sees GPUs: the
/// other ranks of its host may be in other containers.
pub fn in_containers(own: &[&str], (ranks, gpus): (usize, usize)) -> Option<String> {
    (!own.is_empty() && gpus > 0 && ranks > gpus).then(|| {
        format!(
            "container: its own {} namespaces: where each rank has a container of its own, they do not read each other's GPUs \
             (CUDA IPC), and NCCL sends by way of the host or the network: start all ranks of a host in one, or each with \
             `--ipc=host --pid=host`",
            own.join(" and ")
        )
    })
}

/// Advice about the variables of launchers: missing ones, and contradictions.
pub fn of_launcher(launch: &Result<Option<Launch>, String>, told: &[Told]) -> Vec<String> {
    let missing = |names: [&'static str; 2]| -> Vec<&str> {
        let is_set =
            |name: &str| told.iter().flat_map(|told| &told.variables).any(|(of, value)| *of == name && value.is_some());
        names.into_iter().filter(|name| !is_set(name)).collect()
    };
    let mut lines = Vec::new();
    match launch {
        Err(problem) => lines.push(problem.clone()),
        Ok(None) => {
            if let [missing] = missing(["RANK", "WORLD_SIZE"])[..] {
                lines.push(format!("{missing} is not set: this process would train alone"));
            }
        }
        Ok(Some(Launch { size: 1, by, .. })) => {
            let larger =
                |told: &&Told| told.by != *by && told.variables[1].1.as_deref().is_some_and(|size| size != "1");
            lines.extend(told.iter().filter(|told| told.by != ADDRESS_OF).find(larger).map(|other| {
                let (mine, other) = (*by, other.by);
                format!("{mine} says that this process is alone, {other} does not: unset {mine}'s variables if {other} started it")
            }));
        }
        Ok(Some(launch)) => {
            if launch.address.is_none() {
                let missing = missing(["MASTER_ADDR", "MASTER_PORT"]).join(" and ");
                let remedy = "set them to rank 0's host and a port, or pass --rendezvous HOST:PORT";
                lines.push(format!("{missing} not set, and {} does not say where rank 0 is: {remedy}", launch.by));
            }
            if launch.local.is_none() {
                lines.push("the rank on its host is not set (LOCAL_RANK): --device cuda needs it".to_string());
            }
        }
    }
    lines.into_iter().map(|line| format!("launcher: {line}")).collect()
}

/// Advice where NVRTC belongs to a later CUDA than the driver supports.
fn too_new(compiler: (u32, u32), driver: (u32, u32)) -> Option<String> {
    (compiler.0 > driver.0).then(|| {
        format!(
            "NVRTC is of CUDA {}.{}, the driver runs CUDA up to {}.{}: update the driver, or use PyTorch for CUDA {}",
            compiler.0, compiler.1, driver.0, driver.1, driver.0
        )
    })
}

/// Advice without a driver: `devices` NVIDIA devices are on the bus; `kernel` exists if the driver's kernel module is loaded.
fn no_driver(devices: usize, kernel: &Path) -> String {
    match (devices, kernel.exists()) {
        (_, true) => "driver: the host has one, its library (libcuda.so.1) is not here: start the container with \
                      `--gpus all` and NVIDIA's container toolkit"
            .to_string(),
        (0, false) => "driver: none, and no NVIDIA GPU was found: train on the CPU (--device cpu)".to_string(),
        (devices, false) => {
            format!("driver: none for {devices} NVIDIA GPUs: install NVIDIA's driver, 580 or later for CUDA 13")
        }
    }
}

/// Number of NVIDIA display devices on the bus.
fn nvidia_devices(bus: &Path) -> usize {
    let is = |device: PathBuf, file: &str, prefix: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim().starts_with(prefix))
    };
    let devices = gsplit_store::entries(bus).unwrap_or_default().into_iter();
    devices.filter(|device| is(device.clone(), "vendor", "0x10de") && is(device.clone(), "class", "0x03")).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_lack_has_its_advice() {
        let folder = std::env::temp_dir();
        assert!(no_driver(0, Path::new("/nowhere")).contains("--device cpu"));
        assert!(no_driver(2, Path::new("/nowhere")).contains("install"));
        assert!(no_driver(0, &folder).contains("--gpus all"));
        assert!(too_new((13, 0), (12, 8)).is_some_and(|line| line.contains("CUDA 12")));
        assert_eq!(too_new((12, 9), (12, 4)), None);
        assert!(little_shm(64 << 20, 4).is_some_and(|line| line.contains("--shm-size")));
        assert_eq!((little_shm(64 << 20, 1), little_shm(1 << 30, 8)), (None, None));
        assert!(in_containers(&["ipc", "pid"], (4, 1)).is_some_and(|line| line.contains("--ipc=host")));
        assert_eq!((in_containers(&[], (4, 1)), in_containers(&["ipc"], (4, 4))), (None, None));
        assert_eq!(in_containers(&["ipc"], (4, 0)), None);
    }

    #[test]
    fn what_a_launcher_lacks_is_named() {
        let advice = |set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|one| one.0 == name).map(|one| one.1.to_string());
            of_launcher(&Launch::from(&variable), &Told::from(&variable))
        };
        let (alone, two) = ([("RANK", "0"), ("WORLD_SIZE", "1")], [("RANK", "0"), ("WORLD_SIZE", "2")]);
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let at = [("MASTER_ADDR", "a"), ("LOCAL_RANK", "0")];
        assert_eq!(advice(&[]).len() + advice(&alone).len() + advice(&at).len(), 0);
        assert_eq!(advice(&[&two[..], &at, &[("MASTER_PORT", "9")]].concat()).len(), 0);
        for (set, told) in [
            (two[..1].to_vec(), "WORLD_SIZE is not set: this process would train alone"),
            (two[1..].to_vec(), "RANK is not set"),
            ([two, at].concat(), "launcher: MASTER_PORT not set"),
            ([two, [("MASTER_ADDR", "a"), ("MASTER_PORT", "9")]].concat(), "(LOCAL_RANK): --device cuda needs it"),
            ([alone, mpirun].concat(), "torchrun says that this process is alone, mpirun does not: unset torchrun's"),
        ] {
            let lines = advice(&set);
            assert!(lines.len() == 1 && lines[0].contains(told), "{set:?}: {lines:?}");
        }
    }

    #[test]
    fn odd_gpus_are_told_of() {
        let facts = |name: &str| GpuFacts {
            name: name.to_string(),
            compute_capability: (9, 0),
            multiprocessors: 2,
            shared_bytes: 48 << 10,
            most_shared_bytes: 227 << 10,
            pins_mapped_files: false,
            host_addresses: true,
        };
        assert_eq!(odd(&facts("NVIDIA H100 80GB HBM3")), None);
        assert!(odd(&facts("NVIDIA A100-SXM4-40GB MIG 1g.5gb")).is_some_and(|line| line.contains("MIG")));
    }

    #[test]
    fn devices_are_counted_by_their_class() {
        let bus = tempfile::tempdir().unwrap();
        for (name, vendor, class) in
            [("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")]
        {
            let device = bus.path().join(name);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(nvidia_devices(bus.path()), 1);
        assert_eq!(nvidia_devices(Path::new("/nowhere")), 0);
    }
}
