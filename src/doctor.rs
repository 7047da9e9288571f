//! `gsplit doctor`: checks this machine, and gives advice about problems.

mod advice;
mod profile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, thread};

use anyhow::Result;
use gsplit_kernels::{
    CudaLibrary, CudaSurvey, Gpu, GpuError, GpuFacts, Link, has_amx, has_avx512, has_bf16, pinned_copy_speed, processor,
};
use gsplit_preprocess::memory::shown;
use gsplit_store::memory::Memory;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use gsplit::VERSION;
use gsplit::child::tied;
use gsplit::launch::{Launch, Told};
use gsplit::outputs::Outputs;
use gsplit::ui::Ui;

use crate::installed::remedy;
use advice::{advice, in_containers, little_shm, no_gpu, of_launcher};
use profile::{MEASURED, Measured, disk_rates, write_profile};

/// Check which training this machine supports, and how to fix the rest
///
/// Checks processors and memory, libtorch, GPUs with their memory, driver, NVRTC and NCCL, the links between GPUs, the speed of
/// copies from pinned memory, shared memory, namespaces of a container, the variables that a launcher (torchrun, srun, mpirun) sets
/// or leaves out, and whether two ranks reach each other over loopback. With --profile it also measures the speed of the disk.
/// Ends with exit code 0 if training on the CPU works, with 1 if it does not; with --require-gpu also with 1 if no GPU can be used.
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
    /// Measure this machine, which takes some seconds, and write its rates into this file, for gsplit plan
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// With --profile, the device to measure: the CPU, or all GPUs with the links between them
    #[arg(long, value_enum, default_value = "cpu", requires = "profile")]
    device: Measured,
    /// With --profile, a folder on the disk of the datasets: up to 256 MiB are written there during the measurement
    /// [default: the folder for temporary files]
    #[arg(long, value_name = "DIR", requires = "profile")]
    disk: Option<PathBuf>,
    /// Replace the file at --profile, even if gsplit did not make it
    #[arg(long, requires = "profile")]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    if let Some(path) = &args.profile {
        Outputs::new(args.force).file("--profile", path, Some(|line| line.trim_end() == MEASURED))?;
    }
    let (host, training, survey) = (Host::look(), training(), CudaSurvey::new());
    let gpus: Vec<OnGpu> = survey.gpus.iter().flatten().enumerate().map(|(at, facts)| OnGpu::look(at, facts)).collect();
    let (launch, told, loopback) = (Launch::found(), Told::found(), loopback(&training));
    let mut advice = advice(&survey, &gpus, &training);
    advice.extend(host.shm_bytes.and_then(|bytes| little_shm(bytes, gpus.len())));
    let ranks = launch.iter().flatten().map(|launch| launch.size).max().unwrap_or(1);
    advice.extend(in_containers(&host.namespaces, (ranks, gpus.len())));
    advice.extend(of_launcher(&launch, &told));
    advice.extend(loopback.iter().filter_map(|found| Some(format!("loopback: {}", found["problem"].as_str()?))));
    ui.say(format_args!("gsplit {VERSION}"));
    host.say(ui);
    match &launch {
        Ok(Some(launch)) => ui.say(format_args!("  launcher   {launch}")),
        Ok(None) => ui.say(format_args!("  launcher   none (torchrun, srun and mpirun are known by their variables)")),
        Err(problem) => ui.say(format_args!("  launcher   {problem}")),
    }
    told.iter().for_each(|told| ui.say(format_args!("             {told}")));
    say_training(&training, ui);
    loopback.iter().for_each(|found| say_loopback(found, ui));
    let products = products(&training);
    products.iter().flatten().for_each(|found| say_products(found, ui));
    say_libraries(&survey, ui);
    let disk = args.profile.as_ref().and_then(|_| disk_rates(args.disk.clone(), ui));
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
        "variables": told.iter().flat_map(|told| &told.variables).map(|(name, value)| (*name, value)).collect::<BTreeMap<_, _>>(),
        "loopback": loopback,
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
            anyhow::bail!("--profile: this gsplit was built without training, whose kernels are measured")
        }
        Training::Fails(reason) => anyhow::bail!("training does not work: {reason}"),
        Training::Works(_) | Training::NotBuilt => Ok(()),
    }
}

/// Processors and memory.
pub struct Host {
    /// The processor's own name.
    pub processor: String,
    /// Threads that it can run at once.
    pub threads: usize,
    avx512: bool,
    bf16: bool,
    amx: bool,
    /// Memory of the machine, or the limit of the control group.
    pub memory_bytes: u64,
    available_bytes: u64,
    /// Size of /dev/shm, if it exists.
    shm_bytes: Option<u64>,
    /// The kinds of namespaces (IPC, PID) that belong to a container instead of the host.
    namespaces: Vec<&'static str>,
    /// Whether a network device exists through which NCCL sends from GPU memory; without one it sends over TCP between hosts.
    rdma: bool,
}

impl Host {
    /// Reads the facts from the system.
    pub fn look() -> Self {
        let memory = Memory::of_this_machine();
        Self {
            processor: processor(),
            threads: thread::available_parallelism().map_or(1, usize::from),
            avx512: has_avx512(),
            bf16: has_bf16(),
            amx: has_amx(),
            memory_bytes: memory.total(),
            available_bytes: memory.available(),
            shm_bytes: rustix::fs::statvfs("/dev/shm").ok().map(|of| of.f_blocks.saturating_mul(of.f_frsize)),
            namespaces: namespaces(),
            rdma: gsplit_store::entries("/sys/class/infiniband").is_ok_and(|devices| !devices.is_empty()),
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
        let shm = self.shm_bytes.map(|bytes| format!(", {} of shared memory", shown(bytes))).unwrap_or_default();
        ui.say(format_args!("  memory     {}{available}{shm}", shown(self.memory_bytes)));
        let own = if self.namespaces.is_empty() {
            "the host's".into()
        } else {
            format!("own {}", self.namespaces.join(", "))
        };
        ui.say(format_args!("  namespaces {own}"));
        let network = if self.rdma { "RDMA" } else { "no RDMA: between hosts NCCL sends over TCP" };
        ui.say(format_args!("  network    {network}"));
    }

    fn json(&self) -> Value {
        json!({
            "processor": self.processor, "threads": self.threads, "avx512": self.avx512, "bf16": self.bf16, "amx": self.amx,
            "memory_bytes": self.memory_bytes, "available_bytes": self.available_bytes,
            "shm_bytes": self.shm_bytes, "own_namespaces": self.namespaces, "rdma": self.rdma,
        })
    }
}

/// The kinds of namespaces (IPC, PID) of this process that belong to its container instead of the host.
fn namespaces() -> Vec<&'static str> {
    // Linux always gives these numbers to the namespaces that it starts with.
    let of_host = [("ipc", "ipc:[4026531839]"), ("pid", "pid:[4026531836]")];
    let is_own = |&(kind, host): &(&str, &str)| {
        fs::read_link(format!("/proc/self/ns/{kind}")).is_ok_and(|name| name != Path::new(host))
    };
    of_host.into_iter().filter(is_own).map(|(kind, _)| kind).collect()
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
        Err(error) => return Training::Fails(format!("cannot find gsplit's own executable: {error}")),
    };
    match tied(Command::new(&program).arg("--version")).output() {
        Err(error) => {
            Training::Fails(format!("{}: {error}: it belongs next to gsplit: {}", program.display(), remedy()))
        }
        Ok(output) if output.status.success() => {
            Training::Works(String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().map_or_else(|| format!("it ended by {}", output.status), str::to_string);
            // The wheel's gsplit-train itself names the package to install.
            if let Some(reason) = said.strip_prefix("error: ") {
                return Training::Fails(reason.to_string());
            }
            let remedy = match getrlimit(Resource::As).current {
                Some(_) => "memory is limited here: raise the limit (ulimit -v)",
                None => remedy(),
            };
            Training::Fails(format!("{}; {remedy}", said.trim()))
        }
    }
}

/// JSON object that `gsplit-train` prints for `word`.
fn asked(training: &Training, word: &str) -> Option<Value> {
    let Training::Works(_) = training else { return None };
    let output = tied(Command::new(trainer().ok()?).args([word, "--json"])).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// The engine for dense products with each type of factors, from `gsplit-train`, which times the engines if it has not yet.
fn products(training: &Training) -> Option<Vec<Value>> {
    asked(training, "products")?["products"].as_array().cloned()
}

/// Speed of messages between two ranks that torch joins over loopback, or the problem, from `gsplit-train`.
fn loopback(training: &Training) -> Option<Value> {
    let Training::Works(_) = training else { return None };
    let said = asked(training, "loopback").unwrap_or_else(|| json!({ "error": "gsplit-train ended without a word" }));
    Some(if said["error"].is_null() { said } else { json!({ "problem": said["error"] }) })
}

fn say_loopback(found: &Value, ui: &Ui) {
    match (found["problem"].as_str(), found["bytes_per_second"].as_f64()) {
        (None, Some(rate)) => {
            let by = found["interface"].as_str().map(|name| format!(" by interface {name}")).unwrap_or_default();
            ui.say(format_args!(
                "  loopback   two ranks meet{by}: {:.0} MB/s each way, in messages of 4 MiB",
                rate / 1e6
            ));
        }
        (problem, _) => ui.say(format_args!("  loopback   does not work: {}", problem.unwrap_or_default())),
    }
}

fn say_products(found: &Value, ui: &Ui) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let rates = found["gflops"].as_array().into_iter().flatten();
    let rates: Vec<String> =
        rates.map(|rate| format!("{} {:.0}", word(&rate[0]), rate[1].as_f64().unwrap_or_default())).collect();
    let timed = if rates.is_empty() { "not timed".into() } else { format!("GFLOP/s: {}", rates.join(", ")) };
    ui.say(format_args!("  products   {} by {} ({timed})", word(&found["dtype"]), word(&found["engine"])));
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

/// A GPU with its measurements.
struct OnGpu<'a> {
    ordinal: usize,
    facts: &'a GpuFacts,
    /// Free and total bytes of memory, and bytes per second of copies from pinned memory.
    measured: Result<((u64, u64), f64), GpuError>,
}

impl<'a> OnGpu<'a> {
    fn look(ordinal: usize, facts: &'a GpuFacts) -> Self {
        let measured = Gpu::open(ordinal).and_then(|gpu| Ok((gpu.memory()?, pinned_copy_speed(&gpu)?)));
        Self { ordinal, facts, measured }
    }

    fn say(&self, ui: &Ui) {
        let GpuFacts {
            name, compute_capability: (major, minor), multiprocessors, shared_bytes, most_shared_bytes, ..
        } = self.facts;
        let ordinal = self.ordinal;
        ui.say(format_args!(
            "  GPU {ordinal:<6} {name}, compute capability {major}.{minor}, {multiprocessors} multiprocessors"
        ));
        let shared = [shared_bytes, most_shared_bytes].map(|&bytes| shown(bytes.into()));
        ui.say(format_args!("             shared memory of a block {}, up to {} on demand", shared[0], shared[1]));
        let yes = |has: bool| if has { "yes" } else { "no" };
        let has = [self.facts.pins_mapped_files, self.facts.host_addresses].map(yes);
        ui.say(format_args!("             mapped files are pinned {}, the host's addresses {}", has[0], has[1]));
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
            "pins_mapped_files": facts.pins_mapped_files,
            "host_addresses": facts.host_addresses,
            "free_bytes": memory.map(|(free, _)| free),
            "total_bytes": memory.map(|(_, total)| total),
            "pinned_bytes_per_second": speed,
            "unusable": self.measured.as_ref().err().map(ToString::to_string),
        })
    }
}

/// The link from each GPU to each; `None` from a GPU to itself, and where the driver does not report one.
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
