//! `gsplit doctor`: checks this machine, and gives advice about problems.

mod advice;
mod profile;

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::Result;
use gsplit_kernels::{
    CudaLibrary, CudaSurvey, Gpu, GpuError, GpuFacts, Link, has_amx, has_avx512, has_bf16,
    pinned_copy_speed, processor,
};
use gsplit_preprocess::memory::shown;
use gsplit_store::memory::Memory;
use serde::Serialize;
use serde_json::{Value, json};

use crate::VERSION;
use crate::child::tied;
use crate::launch::Launch;
use crate::outputs::Outputs;
use crate::presample::Device;
use crate::ui::Ui;

use crate::installed::remedy;
use advice::{advice, little_shm, no_gpu};
use profile::{MEASURED, disk_rates, write_profile};

/// Check which training this machine supports, and how to fix the rest
///
/// Checks processors and memory, libtorch, GPUs with their memory, driver, NVRTC and NCCL, the
/// links between GPUs, the speed of copies from pinned memory, shared memory, and what the
/// variables of a launcher (torchrun, srun, mpirun) say. With --profile it also measures the speed
/// of the disk. Ends with exit code 0 if training on the CPU works, with 1 if it does not; with
/// --require-gpu also with 1 if no GPU can be used.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit doctor
  gsplit doctor --json
  gsplit doctor --require-gpu
  gsplit doctor --profile here.toml --disk products
  gsplit doctor --profile gpus.toml --device cuda")]
pub struct Args {
    /// Fail if no GPU can be used, and say why: to check before a run with --device cuda
    #[arg(long)]
    require_gpu: bool,
    /// Measure this machine, which takes some seconds, and write its rates into this file, for
    /// gsplit plan
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// With --profile, the device to measure: the CPU, or all GPUs with the links between them
    #[arg(long, value_enum, default_value = "cpu", requires = "profile")]
    device: Device,
    /// With --profile, a folder on the disk of the datasets: up to 256 MiB are written there during
    /// the measurement [default: the folder for temporary files]
    #[arg(long, value_name = "DIR", requires = "profile")]
    disk: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    if let Some(path) = &args.profile {
        Outputs::default().file("--profile", path, Some(|line| line.trim_end() == MEASURED))?;
    }
    let (host, training, survey) = (Host::look(), training(), CudaSurvey::look());
    let gpus = survey.gpus.iter().flatten().enumerate();
    let gpus: Vec<OnGpu> = gpus.map(|(at, facts)| OnGpu::look(at, facts)).collect();
    let launch = Launch::found();
    let mut advice = advice(&survey, &gpus, &training);
    advice.extend(host.shm_bytes.and_then(|bytes| little_shm(bytes, gpus.len())));
    advice.extend(launch.as_ref().err().map(|problem| format!("launcher: {problem}")));
    ui.say(format_args!("gsplit {VERSION}"));
    host.say(ui);
    match &launch {
        Ok(Some(launch)) => ui.say(format_args!("  launcher   {launch}")),
        Ok(None) => ui.say(format_args!(
            "  launcher   none (torchrun, srun and mpirun are known by their variables)"
        )),
        Err(problem) => ui.say(format_args!("  launcher   {problem}")),
    }
    say_training(&training, ui);
    let products = products(&training);
    products.iter().flatten().for_each(|found| say_products(found, ui));
    say_libraries(&survey, ui);
    let disk = args.profile.as_ref().and_then(|_| disk_rates(args.disk.clone(), ui));
    gpus.iter().for_each(|gpu| gpu.say(ui));
    let links = links(&survey, gpus.len());
    say_links(&links, ui);
    if !advice.is_empty() {
        ui.say(format_args!("To do"));
        advice.iter().for_each(|line| ui.say(format_args!("  {line}")));
    }
    ui.json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": host,
        "launcher": match &launch {
            Ok(Some(launch)) => json!({ "name": launch.by, "rank": launch.rank, "size": launch.size, "local_rank": launch.local,
                "rendezvous": launch.address.as_ref().map(|(host, port)| format!("{host}:{port}")) }),
            Ok(None) => Value::Null,
            Err(problem) => json!({ "problem": problem }),
        },
        "training": match &training { Training::Works(version) => json!({ "works": true, "program": version }),
            Training::NotBuilt => json!({ "works": false, "built": false }),
            Training::Fails(reason) => json!({ "works": false, "built": true, "reason": reason }) },
        "products": products,
        "disk": disk,
        "driver": library_json(&survey.driver),
        "nvrtc": library_json(&survey.compiler),
        "nccl": library_json(&survey.nccl),
        "gpus": gpus.iter().map(OnGpu::json).collect::<Vec<_>>(),
        "links": links.iter().map(|row| row.iter().map(|link| link_name(*link)).collect()).collect::<Vec<Vec<_>>>(),
        "advice": advice,
    }));
    if let (true, Some(why)) = (args.require_gpu, no_gpu(&survey, &gpus)) {
        anyhow::bail!("--require-gpu: no GPU can be used: {why}");
    }
    if let (Some(path), Training::Works(_)) = (&args.profile, &training) {
        write_profile(path, args.device, disk.as_ref(), ui)?;
    }
    match training {
        Training::NotBuilt if args.profile.is_some() => {
            anyhow::bail!(
                "--profile: this gsplit was built without training, whose kernels are measured"
            )
        }
        Training::Fails(reason) => anyhow::bail!("training does not work: {reason}"),
        Training::Works(_) | Training::NotBuilt => Ok(()),
    }
}

/// Processors and memory.
#[derive(Serialize)]
struct Host {
    /// The processor's own name.
    processor: String,
    /// Threads that it can run at once.
    threads: usize,
    avx512: bool,
    bf16: bool,
    amx: bool,
    /// Memory of the machine, or the limit of the control group.
    memory_bytes: u64,
    available_bytes: u64,
    /// Size of /dev/shm, if it exists.
    shm_bytes: Option<u64>,
    /// Whether a network device exists through which NCCL sends from GPU memory; without one it
    /// sends over TCP between hosts.
    rdma: bool,
}

impl Host {
    /// Reads the facts from the system.
    fn look() -> Self {
        let memory = Memory::of_this_machine();
        Self {
            processor: processor(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            avx512: has_avx512(),
            bf16: has_bf16(),
            amx: has_amx(),
            memory_bytes: memory.total(),
            available_bytes: memory.available(),
            shm_bytes: rustix::fs::statvfs("/dev/shm")
                .ok()
                .map(|of| of.f_blocks.saturating_mul(of.f_frsize)),
            rdma: gsplit_store::entries("/sys/class/infiniband")
                .is_ok_and(|devices| !devices.is_empty()),
        }
    }

    fn say(&self, ui: &Ui) {
        let yes = |has: bool| if has { "yes" } else { "no" };
        let [avx512, bf16, amx] = [self.avx512, self.bf16, self.amx].map(yes);
        ui.say(format_args!(
            "  processor  {}, {} threads, AVX-512 {avx512}, bf16 {bf16}, AMX {amx}",
            self.processor, self.threads
        ));
        let available = format!(", {} available", shown(self.available_bytes));
        let shm = self
            .shm_bytes
            .map(|bytes| format!(", {} of shared memory", shown(bytes)))
            .unwrap_or_default();
        ui.say(format_args!("  memory     {}{available}{shm}", shown(self.memory_bytes)));
        let network = if self.rdma { "RDMA" } else { "no RDMA: between hosts NCCL sends over TCP" };
        ui.say(format_args!("  network    {network}"));
    }
}

/// Whether `gsplit-train`, which loads libtorch, can start.
enum Training {
    /// It starts, and describes itself with this text.
    Works(String),
    /// This gsplit was built without training.
    NotBuilt,
    /// It does not start, for this reason.
    Fails(String),
}

/// The path of the program that loads libtorch, in the same folder as this one.
fn trainer() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("gsplit-train"))
}

fn training() -> Training {
    if !cfg!(feature = "train") {
        return Training::NotBuilt;
    }
    let program = match trainer() {
        Ok(program) => program,
        Err(error) => {
            return Training::Fails(format!("cannot find gsplit's own executable: {error}"));
        }
    };
    match tied(Command::new(&program).arg("--version")).output() {
        Err(error) => Training::Fails(format!(
            "{}: {error}: it belongs next to gsplit: {}",
            program.display(),
            remedy()
        )),
        Ok(output) if output.status.success() => {
            Training::Works(String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said
                .lines()
                .next()
                .map_or_else(|| format!("it ended by {}", output.status), str::to_string);
            // The wheel's gsplit-train itself names the package to install.
            if let Some(reason) = said.strip_prefix("error: ") {
                return Training::Fails(reason.to_string());
            }
            Training::Fails(format!("{}; {}", said.trim(), remedy()))
        }
    }
}

/// The engine for dense products with each type of factors, from `gsplit-train`, which times the
/// engines if it has not yet.
fn products(training: &Training) -> Option<Vec<Value>> {
    let Training::Works(_) = training else { return None };
    let output = tied(Command::new(trainer().ok()?).args(["products", "--json"])).output().ok()?;
    let said: Value = serde_json::from_slice(&output.stdout).ok()?;
    said["products"].as_array().cloned()
}

fn say_products(found: &Value, ui: &Ui) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let rates = found["gflops"].as_array().into_iter().flatten();
    let rates: Vec<String> = rates
        .map(|rate| format!("{} {:.0}", word(&rate[0]), rate[1].as_f64().unwrap_or_default()))
        .collect();
    let timed = if rates.is_empty() {
        "not timed".into()
    } else {
        format!("GFLOP/s: {}", rates.join(", "))
    };
    ui.say(format_args!(
        "  products   {} by {} ({timed})",
        word(&found["dtype"]),
        word(&found["engine"])
    ));
}

fn say_training(training: &Training, ui: &Ui) {
    match training {
        Training::Works(version) => {
            ui.say(format_args!("  training   on the CPU works ({version})"))
        }
        Training::NotBuilt => {
            ui.say(format_args!("  training   left out of this build, which prepares only"))
        }
        Training::Fails(reason) => ui.say(format_args!("  training   does not work: {reason}")),
    }
}

fn say_libraries(survey: &CudaSurvey, ui: &Ui) {
    let driver = "driver";
    for (name, found) in
        [(driver, &survey.driver), ("NVRTC", &survey.compiler), ("NCCL", &survey.nccl)]
    {
        match found {
            Ok(CudaLibrary { version, path }) => {
                let version = version
                    .map_or("of an unknown version".to_string(), |(major, minor)| {
                        format!("{major}.{minor}")
                    });
                let version =
                    if name == driver { format!("for CUDA up to {version}") } else { version };
                let path =
                    path.as_deref().map(|path| format!(", {}", path.display())).unwrap_or_default();
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

/// A GPU with its measurements.
struct OnGpu<'a> {
    ordinal: usize,
    facts: &'a GpuFacts,
    /// Free and total bytes of memory, and bytes per second of copies from pinned memory.
    measured: Result<((u64, u64), f64), GpuError>,
}

impl<'a> OnGpu<'a> {
    fn look(ordinal: usize, facts: &'a GpuFacts) -> Self {
        let measured =
            Gpu::open(ordinal).and_then(|gpu| Ok((gpu.memory()?, pinned_copy_speed(&gpu)?)));
        Self { ordinal, facts, measured }
    }

    fn say(&self, ui: &Ui) {
        let GpuFacts { name, compute_capability: (major, minor), multiprocessors, .. } = self.facts;
        let ordinal = self.ordinal;
        ui.say(format_args!(
            "  GPU {ordinal:<6} {name}, compute capability {major}.{minor}, {multiprocessors} \
             multiprocessors"
        ));
        match &self.measured {
            Ok(((free, total), speed)) => {
                let (free, total, speed) = (shown(*free), shown(*total), speed / 1e9);
                ui.say(format_args!(
                    "             {free} of {total} free, {speed:.1} GB/s from pinned memory"
                ));
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
            "pins_mapped_files": facts.pins_mapped_files,
            "host_addresses": facts.host_addresses,
            "free_bytes": memory.map(|(free, _)| free),
            "total_bytes": memory.map(|(_, total)| total),
            "pinned_bytes_per_second": speed,
            "unusable": self.measured.as_ref().err().map(ToString::to_string),
        })
    }
}

/// The link from each GPU to each; `None` from a GPU to itself, and where the driver does not
/// report one.
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
    let heads: Vec<String> = (0..links.len()).map(|to| to.to_string()).collect();
    let rows = links.iter().enumerate().map(|(from, row)| {
        let cells = row.iter().map(|link| link_name(*link).to_string());
        [format!("  GPU {from}")].into_iter().chain(cells).collect()
    });
    ui.columns(&format!(", {}", heads.join(", ")), rows);
}
