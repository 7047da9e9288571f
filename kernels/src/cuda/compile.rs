//! Compiler of CUDA C to machine code, by NVRTC, once for each GPU architecture.
//!
//! Returns: a cubin. Input: a file of kernels, and an architecture, e.g. 90. Cubins are kept in a
//! folder of the user (`$XDG_CACHE_HOME/gsplit/kernels`), under a name made of everything that they
//! depend on. A folder that cannot be written costs only the time to compile again. Cost: 0.1 s to
//! several seconds per file, depending on the number of types its kernels support.
//!
//! Unsafe code of this file: calls of NVRTC's C functions.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::{fs, process, ptr};

use bytemuck::pod_read_unaligned;
use cudarc::nvrtc::result::{self as nvrtc, NvrtcError};
use cudarc::nvrtc::sys;
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

use super::module::{HEADERS, Module};
use super::{GpuError, library};
use crate::machine::cache_folder;

/// The machine code of each of `modules` for `architecture`, in parallel. If several processes find
/// none in the cache, one compiles while the others wait.
pub(super) fn compile_all(
    modules: &[&Module],
    architecture: u32,
) -> Result<Vec<Vec<u8>>, GpuError> {
    library::compiler()?;
    let all = || modules.par_iter().map(|module| compile_cached(module, architecture)).collect();
    let folder = cache_folder().map(|folder| folder.join("kernels"));
    let missing = |folder: &PathBuf| {
        modules.iter().any(|module| !folder.join(file_name(module, architecture)).exists())
    };
    let Some(folder) = folder.filter(missing) else { return all() };
    let _ = fs::create_dir_all(&folder);
    // Without the lock all processes compile, which takes longer and does no harm.
    let lock = fs::File::create(folder.join(format!("sm_{architecture}.lock")))
        .ok()
        .filter(|file| file.lock().is_ok());
    let compiled = all();
    drop(lock);
    compiled
}

/// The names of the kernels in a cubin.
pub(super) fn kernels_of(cubin: &[u8]) -> impl Iterator<Item = &str> {
    let names = cubin.split(|&byte| byte == 0).filter_map(|name| name.strip_prefix(b".text."));
    names.filter_map(|name| std::str::from_utf8(name).ok())
}

/// The machine code of `module` for `architecture`, from the cache or made now.
pub(super) fn compile_cached(module: &Module, architecture: u32) -> Result<Vec<u8>, GpuError> {
    library::compiler()?;
    let path =
        cache_folder().map(|folder| folder.join("kernels").join(file_name(module, architecture)));
    if let Some(cubin) =
        path.as_deref().and_then(|path| fs::read(path).ok()).filter(|cubin| is_cubin(cubin))
    {
        return Ok(cubin);
    }
    let cubin = compile(module, architecture)?;
    if let Some(path) = path {
        // Another process may write the same file at the same time; the file appears whole.
        let _ = keep(&path, &cubin);
    }
    Ok(cubin)
}

/// The machine code of `module` for `architecture`.
pub(super) fn compile(module: &Module, architecture: u32) -> Result<Vec<u8>, GpuError> {
    library::compiler()?;
    let program = Program::new(module)?;
    let architecture = format!("sm_{architecture}");
    let options = options(&architecture).map(|option| CString::new(option).unwrap_or_default());
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program was created, the options are C strings that outlive the call.
    let compiled = unsafe {
        sys::nvrtcCompileProgram(program.0, options.len() as c_int, options.as_ptr()).result()
    };
    if compiled.is_err() {
        let log = program.log();
        let complaint = log.lines().find(|line| line.contains("error")).or(log.lines().next());
        let log = complaint.unwrap_or("no reason given").to_string();
        return Err(GpuError::Compile { module: module.name, architecture, log });
    }
    program.cubin()
}

fn options(architecture: &str) -> [String; 3] {
    [
        format!("--gpu-architecture={architecture}"),
        "--std=c++17".into(),
        "--generate-line-info".into(),
    ]
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn new(module: &Module) -> Result<Self, GpuError> {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (source, name) = (text(module.source), text(&format!("{}/cuda.cu", module.name)));
        let headers = HEADERS.map(|(name, header)| (text(name), text(header)));
        let contents = headers.each_ref().map(|(_, header)| header.as_ptr());
        let names = headers.each_ref().map(|(name, _)| name.as_ptr());
        let mut program = ptr::null_mut();
        // SAFETY: NVRTC copies the strings, which live until it returns.
        unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as c_int,
                contents.as_ptr(),
                names.as_ptr(),
            )
        }
        .result()
        .map_err(refused("nvrtcCreateProgram"))?;
        Ok(Self(program))
    }

    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { nvrtc::get_program_log(self.0) }.unwrap_or_default();
        let text: Vec<u8> =
            log.into_iter().map(|byte| byte as u8).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, GpuError> {
        let mut size = 0;
        // SAFETY: the program was compiled; the code has the size that NVRTC gives.
        unsafe {
            sys::nvrtcGetCUBINSize(self.0, &mut size)
                .result()
                .map_err(refused("nvrtcGetCUBINSize"))?;
            let mut cubin = vec![0u8; size];
            sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast())
                .result()
                .map_err(refused("nvrtcGetCUBIN"))?;
            Ok(cubin)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created and is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn refused(call: &'static str) -> impl Fn(NvrtcError) -> GpuError {
    move |error| GpuError::Call { call, reason: format!("{:?}", error.0) }
}

/// Version of NVRTC, which must be installed.
pub(super) fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are written or left unchanged.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

/// Whether the installed driver loads the cubins that the installed NVRTC makes: CUDA's versions of
/// the same first number are compatible, and later drivers load all earlier ones.
pub(super) fn check_driver() -> Result<(), GpuError> {
    let (driver, (major, _)) = (library::driver_version(), version());
    match driver < (major as u32, 0) {
        true => Err(GpuError::OldDriver {
            driver,
            needed: (major as u32, 0),
            by: "NVRTC, which compiles the kernels,",
        }),
        false => Ok(()),
    }
}

/// A name that changes with the source, its headers, the options and the compiler.
fn file_name(module: &Module, architecture: u32) -> String {
    let mut hash = Xxh3::new();
    hash.update(module.source.as_bytes());
    HEADERS.iter().for_each(|(_, header)| hash.update(header.as_bytes()));
    let architecture = format!("sm_{architecture}");
    options(&architecture).iter().for_each(|option| hash.update(option.as_bytes()));
    let (major, minor) = version();
    format!("{}-{:032x}-nvrtc{major}.{minor}-{architecture}.cubin", module.name, hash.digest128())
}

/// Whether it is a 64-bit ELF file that contains everything its header refers to: the driver gets
/// no length, and reads beyond the end of a truncated file.
fn is_cubin(bytes: &[u8]) -> bool {
    let long = |at: usize| bytes.get(at..at + 8).map(pod_read_unaligned::<u64>);
    let short = |at: usize| bytes.get(at..at + 2).map(pod_read_unaligned::<u16>);
    // Where the table of segments, or of sections, starts, the bytes of an entry, and how many
    // there are.
    let end = |(start, entry, count)| {
        long(start)?.checked_add(u64::from(short(entry)?) * u64::from(short(count)?))
    };
    let ends = [(0x20, 0x36, 0x38), (0x28, 0x3A, 0x3C)].map(end);
    bytes.starts_with(b"\x7fELF\x02")
        && ends.iter().all(|end| end.is_some_and(|end| end <= bytes.len() as u64))
}

/// Writes the file as a whole or not at all.
fn keep(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let part = path.with_extension(format!("{}.part", process::id()));
    fs::write(&part, cubin)?;
    fs::rename(&part, path).inspect_err(|_| drop(fs::remove_file(&part)))
}

#[cfg(test)]
mod tests {
    use super::super::module::MODULES;
    use super::*;

    /// NVRTC 13 does not support Volta any more.
    fn architectures() -> impl Iterator<Item = u32> {
        let volta = library::compiler().is_ok_and(|_| version().0 < 13).then_some(70);
        volta.into_iter().chain([75, 80, 89, 90, 100, 120])
    }

    /// Every sixth of them, for the oldest; the fakes compile all for one of the newest.
    #[test]
    fn every_kernel_compiles() {
        every_kernel_compiles_for(
            |module| if module.is_multiple_of(6) { vec![75] } else { vec![] },
        );
    }

    #[test]
    #[ignore = "takes long: make test-all"]
    fn every_kernel_compiles_for_every_architecture() {
        every_kernel_compiles_for(|_| architectures().collect());
    }

    fn every_kernel_compiles_for(chosen: impl Fn(usize) -> Vec<u32> + Sync) {
        if let Err(missing) = library::compiler() {
            return eprintln!("skipped: {missing}");
        }
        MODULES.par_iter().enumerate().for_each(|(i, module)| {
            for architecture in chosen(i) {
                let cubin = compile(module, architecture).unwrap();
                assert!(is_cubin(&cubin), "{} for sm_{architecture}", module.name);
            }
        });
    }

    #[test]
    fn a_cubin_that_was_cut_off_is_none() {
        if let Err(missing) = library::compiler() {
            return eprintln!("skipped: {missing}");
        }
        let cubin = compile(
            &Module { name: "m", source: "extern \"C\" __global__ void f(int *x) { *x = 1; }" },
            90,
        )
        .unwrap();
        assert!(is_cubin(&cubin));
        assert!((0..cubin.len()).step_by(7).all(|bytes| !is_cubin(&cubin[..bytes])));
    }

    #[test]
    fn a_kernel_that_does_not_compile_is_named_with_its_line() {
        if let Err(missing) = library::compiler() {
            return eprintln!("skipped: {missing}");
        }
        let module = Module { name: "wrong", source: "\n\nint f() { return x; }" };
        let error = compile(&module, 90).unwrap_err().to_string();
        assert!(error.contains("wrong") && error.contains("cuda.cu(3)"), "{error}");
    }

    #[test]
    fn the_cache_knows_what_it_depends_on() {
        let [a, b] = ["a", "b"].map(|source| Module { name: "m", source });
        if library::compiler().is_err() {
            return;
        }
        assert_ne!(file_name(&a, 90), file_name(&b, 90));
        assert_ne!(file_name(&a, 90), file_name(&a, 80));
        assert_eq!(file_name(&a, 90), file_name(&a, 90));
    }
}
