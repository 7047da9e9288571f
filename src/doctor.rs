//! `gsplit doctor`: what this machine can do, and what to do about the rest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, thread};

use anyhow::Result;
use gsplit_kernels::{CudaLibrary, CudaSurvey, Gpu, GpuError, GpuFacts, Link, pinned_copy_speed};
use gsplit_preprocess::memory::{machine, shown};
use serde_json::{Value, json};

use gsplit::launch::Launch;
use gsplit::ui::Ui;

/// Shared memory that NCCL may want for a GPU whose messages go through the host.
const SHM_OF_A_GPU: u64 = 64 << 20;
/// Oldest GPUs that NVRTC 13 compiles for.
const OLDEST: (u32, u32) = (7, 5);

/// Show what this machine can train on, and what to do about what is missing
///
/// Looks for processors and memory, libtorch, GPUs with their memory, driver, NVRTC and NCCL, the links between GPUs, the
/// speed of copies from pinned memory, shared memory, and what a launcher (torchrun, srun, mpirun) says. Ends with exit
/// code 0 if training on the CPU works, with 1 if it does not.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit doctor\n  gsplit doctor --json")]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args, ui: &Ui) -> Result<()> {
    let (host, training, survey) = (Host::look(), training(), CudaSurvey::new());
    let gpus: Vec<OnGpu> = survey.gpus.iter().flatten().enumerate().map(|(at, facts)| OnGpu::look(at, facts)).collect();
    let launch = Launch::found();
    let mut advice = advice(&survey, &gpus, &training);
    advice.extend(host.shm_bytes.and_then(|bytes| little_shm(bytes, gpus.len())));
    advice.extend(launch.as_ref().err().map(|problem| format!("launcher: {problem}")));
    ui.say(format_args!("gsplit {}", env!("CARGO_PKG_VERSION")));
    host.say(ui);
    match &launch {
        Ok(Some(launch)) => ui.say(format_args!("  launcher   {launch}")),
        Ok(None) => ui.say(format_args!("  launcher   none (torchrun, srun and mpirun are known by their variables)")),
        Err(problem) => ui.say(format_args!("  launcher   {problem}")),
    }
    say_training(&training, ui);
    say_libraries(&survey, ui);
    for gpu in &gpus {
        gpu.say(ui);
    }
    let links = links(&survey, gpus.len());
    say_links(&links, ui);
    if !advice.is_empty() {
        ui.say(format_args!("To do"));
        advice.iter().for_each(|line| ui.say(format_args!("  {line}")));
    }
    ui.json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": host.json(),
        "launcher": match &launch {
            Ok(Some(launch)) => json!({ "name": launch.by, "rank": launch.rank, "size": launch.size, "local_rank": launch.local,
                "rendezvous": launch.address.as_ref().map(|(host, port)| format!("{host}:{port}")) }),
            Ok(None) => Value::Null,
            Err(problem) => json!({ "problem": problem }),
        },
        "training": match &training { Training::Works(version) => json!({ "works": true, "program": version }),
            Training::NotBuilt => json!({ "works": false, "built": false }),
            Training::Fails(reason) => json!({ "works": false, "built": true, "reason": reason }) },
        "driver": library_json(&survey.driver),
        "nvrtc": library_json(&survey.compiler),
        "nccl": library_json(&survey.nccl),
        "gpus": gpus.iter().map(OnGpu::json).collect::<Vec<_>>(),
        "links": links.iter().map(|row| row.iter().map(|link| link_name(*link)).collect()).collect::<Vec<Vec<_>>>(),
        "advice": advice,
    }));
    match training {
        Training::Fails(reason) => anyhow::bail!("training does not work: {reason}"),
        Training::Works(_) | Training::NotBuilt => Ok(()),
    }
}

/// Processors and memory.
struct Host {
    processor: String,
    threads: usize,
    avx512: bool,
    bf16: bool,
    memory_bytes: u64,
    available_bytes: Option<u64>,
    /// Of /dev/shm, where there is one.
    shm_bytes: Option<u64>,
}

impl Host {
    fn look() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let flags = field("flags").or(field("Features")).unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|found| found == flag);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let available = available.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let memory_bytes = machine();
        Self {
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            threads: thread::available_parallelism().map_or(1, usize::from),
            avx512: has("avx512f"),
            bf16: ["avx512_bf16", "amx_bf16", "bf16"].into_iter().any(has),
            memory_bytes,
            available_bytes: available.map(|kib| (kib << 10).min(memory_bytes)),
            shm_bytes: rustix::fs::statvfs("/dev/shm").ok().map(|of| of.f_blocks.saturating_mul(of.f_frsize)),
        }
    }

    fn say(&self, ui: &Ui) {
        let yes = |has: bool| if has { "yes" } else { "no" };
        let (avx512, bf16) = (yes(self.avx512), yes(self.bf16));
        ui.say(format_args!(
            "  processor  {}, {} threads, AVX-512 {avx512}, bf16 {bf16}",
            self.processor, self.threads
        ));
        let available = self.available_bytes.map(|bytes| format!(", {} available", shown(bytes))).unwrap_or_default();
        let shm = self.shm_bytes.map(|bytes| format!(", {} of shared memory", shown(bytes))).unwrap_or_default();
        ui.say(format_args!("  memory     {}{available}{shm}", shown(self.memory_bytes)));
    }

    fn json(&self) -> Value {
        json!({
            "processor": self.processor, "threads": self.threads, "avx512": self.avx512, "bf16": self.bf16,
            "memory_bytes": self.memory_bytes, "available_bytes": self.available_bytes,
            "shm_bytes": self.shm_bytes,
        })
    }
}

/// Whether `gsplit-train`, which loads libtorch, starts.
enum Training {
    /// It does, and says this of itself.
    Works(String),
    /// This gsplit was built to prepare only.
    NotBuilt,
    /// It does not, because of this.
    Fails(String),
}

fn training() -> Training {
    if !cfg!(feature = "train") {
        return Training::NotBuilt;
    }
    let program = match std::env::current_exe() {
        Ok(program) => program.with_file_name("gsplit-train"),
        Err(error) => return Training::Fails(format!("cannot find gsplit's own executable: {error}")),
    };
    match Command::new(&program).arg("--version").output() {
        Err(error) => {
            let remedy = "it belongs beside gsplit: copy both, or run `make build`";
            Training::Fails(format!("{}: {error}: {remedy}", program.display()))
        }
        Ok(output) if output.status.success() => {
            Training::Works(String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("it ended without a word").trim();
            Training::Fails(format!("{said}; run `make setup`, which finds or fetches libtorch, and build again"))
        }
    }
}

fn say_training(training: &Training, ui: &Ui) {
    match training {
        Training::Works(version) => ui.say(format_args!("  training   on the CPU works ({version})")),
        Training::NotBuilt => ui.say(format_args!("  training   left out of this build, which prepares only")),
        Training::Fails(reason) => ui.say(format_args!("  training   does not work: {reason}")),
    }
}

fn say_libraries(survey: &CudaSurvey, ui: &Ui) {
    let driver = "driver";
    for (name, found) in [(driver, &survey.driver), ("NVRTC", &survey.compiler), ("NCCL", &survey.nccl)] {
        match found {
            Ok(CudaLibrary { version, path }) => {
                let version =
                    version.map_or("of an unknown version".to_string(), |(major, minor)| format!("{major}.{minor}"));
                let version = if name == driver { format!("for CUDA up to {version}") } else { version };
                let path = path.as_deref().map(|path| format!(", {}", path.display())).unwrap_or_default();
                ui.say(format_args!("  {name:<10} {version}{path}"));
            }
            Err(GpuError::Missing { .. }) => ui.say(format_args!("  {name:<10} not found")),
            Err(error) => ui.say(format_args!("  {name:<10} {error}")),
        }
    }
    if let (Ok(_), Err(error)) = (&survey.driver, &survey.gpus) {
        ui.say(format_args!("  GPUs       none: {error}"));
    }
}

fn library_json(found: &Result<CudaLibrary, GpuError>) -> Value {
    match found {
        Ok(CudaLibrary { version, path }) => json!({
            "version": version.map(|(major, minor)| format!("{major}.{minor}")),
            "path": path.as_deref().map(|path| path.display().to_string()),
        }),
        Err(error) => json!({ "missing": error.to_string() }),
    }
}

/// A GPU and what was measured on it.
struct OnGpu<'a> {
    ordinal: usize,
    facts: &'a GpuFacts,
    /// Free and total bytes, and bytes a second.
    measured: Result<((u64, u64), f64), GpuError>,
}

impl<'a> OnGpu<'a> {
    fn look(ordinal: usize, facts: &'a GpuFacts) -> Self {
        let measured = Gpu::open(ordinal).and_then(|gpu| Ok((gpu.memory()?, pinned_copy_speed(&gpu)?)));
        Self { ordinal, facts, measured }
    }

    fn say(&self, ui: &Ui) {
        let GpuFacts { name, compute_capability: (major, minor), multiprocessors, shared_bytes, most_shared_bytes } =
            self.facts;
        let ordinal = self.ordinal;
        ui.say(format_args!(
            "  GPU {ordinal:<6} {name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors"
        ));
        let shared = [shared_bytes, most_shared_bytes].map(|&bytes| shown(bytes.into()));
        ui.say(format_args!("             shared memory of a block {}, up to {} on demand", shared[0], shared[1]));
        match &self.measured {
            Ok(((free, total), speed)) => {
                let (free, total, speed) = (shown(*free), shown(*total), speed / 1e9);
                ui.say(format_args!("             {free} of {total} free, {speed:.1} GB/s from pinned memory"));
            }
            Err(error) => ui.say(format_args!("             cannot be used: {error}")),
        }
    }

    fn json(&self) -> Value {
        let facts = self.facts;
        let (memory, speed) = self.measured.as_ref().ok().copied().unzip();
        let (major, minor) = facts.compute_capability;
        json!({
            "ordinal": self.ordinal,
            "name": facts.name,
            "compute_capability": format!("{major}.{minor}"),
            "multiprocessors": facts.multiprocessors,
            "shared_bytes_per_block": facts.shared_bytes,
            "most_shared_bytes_per_block": facts.most_shared_bytes,
            "free_bytes": memory.map(|(free, _)| free),
            "total_bytes": memory.map(|(_, total)| total),
            "pinned_bytes_per_second": speed,
            "unusable": self.measured.as_ref().err().map(ToString::to_string),
        })
    }
}

/// From each GPU to each; `None` from one to itself, and where the driver does not say.
fn links(survey: &CudaSurvey, gpus: usize) -> Vec<Vec<Option<Link>>> {
    let link = |from, to| if from == to { None } else { survey.link(from, to).ok() };
    (0..gpus).map(|from| (0..gpus).map(|to| link(from, to)).collect()).collect()
}

fn link_name(link: Option<Link>) -> &'static str {
    match link {
        Some(Link::NvLink) => "NVLink",
        Some(Link::Pcie) => "PCIe",
        Some(Link::ThroughHost) => "host",
        None => "-",
    }
}

fn say_links(links: &[Vec<Option<Link>>], ui: &Ui) {
    if links.len() < 2 {
        return;
    }
    ui.say(format_args!("  how each GPU reaches the others"));
    let head: String = (0..links.len()).map(|to| format!("{to:>8}")).collect();
    ui.say(format_args!("             {head}"));
    for (from, row) in links.iter().enumerate() {
        let row: String = row.iter().map(|link| format!("{:>8}", link_name(*link))).collect();
        ui.say(format_args!("  GPU {from:<6} {row}"));
    }
}

/// One line for each thing that is missing.
fn advice(survey: &CudaSurvey, gpus: &[OnGpu<'_>], training: &Training) -> Vec<String> {
    let mut lines = Vec::new();
    if let Training::Fails(reason) = training {
        lines.push(format!("training: {reason}"));
    }
    match &survey.driver {
        Err(_) => {
            lines.push(no_driver(nvidia_devices(Path::new("/sys/bus/pci/devices")), Path::new("/proc/driver/nvidia")))
        }
        Ok(_) => match &survey.gpus {
            Err(error) => lines.push(format!(
                "GPUs: {error}; see whether `nvidia-smi` works, and whether CUDA_VISIBLE_DEVICES hides them"
            )),
            Ok(found) if found.is_empty() => lines.push("GPUs: none; CUDA_VISIBLE_DEVICES may hide them".to_string()),
            Ok(_) => {}
        },
    }
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
    lines
}

/// Advice where `bytes` of shared memory are few for as many `gpus`.
fn little_shm(bytes: u64, gpus: usize) -> Option<String> {
    let needed = SHM_OF_A_GPU * gpus as u64;
    (gpus > 1 && bytes < needed).then(|| {
        format!(
            "shared memory: /dev/shm has {}, processes with {gpus} GPUs may need {}: start the container with `--shm-size=1g`",
            shown(bytes),
            shown(needed)
        )
    })
}

/// Advice where NVRTC is of a later CUDA than the driver runs.
fn too_new(compiler: (u32, u32), driver: (u32, u32)) -> Option<String> {
    (compiler.0 > driver.0).then(|| {
        format!(
            "NVRTC is of CUDA {}.{}, the driver runs CUDA up to {}.{}: update the driver, or use PyTorch for CUDA {}",
            compiler.0, compiler.1, driver.0, driver.1, driver.0
        )
    })
}

/// Advice where there is no driver: `devices` of NVIDIA's are on the bus, and `kernel` is there if its half of the driver is.
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

/// How many display devices of NVIDIA's the bus has.
fn nvidia_devices(bus: &Path) -> usize {
    let is = |device: PathBuf, file: &str, prefix: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim().starts_with(prefix))
    };
    let devices = fs::read_dir(bus).into_iter().flatten().flatten().map(|entry| entry.path());
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
