//! `make setup`: which libtorch it links; and the check of `make dist`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::scratch;

/// The last line of scripts/libtorch.py for `destination`, where `torch` is the PyTorch that Python
/// finds.
fn set_up(destination: &Path, python_path: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/libtorch.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(destination).env("PYTHONPATH", python_path);
    let done = command.env_remove("LIBTORCH").env_remove("GSPLIT_PYTHON").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8(done.stdout).unwrap();
    said.lines().last().unwrap().to_string()
}

#[test]
fn a_pytorch_for_cuda_that_comes_later_is_linked() {
    let libtorch = Path::new(env!("CARGO_MANIFEST_DIR")).join("libtorch");
    if !libtorch.join("set-up-from").is_file() {
        eprintln!("skipped: libtorch is not that of `make setup`");
        return;
    }
    let folder = &*scratch();
    let (fetched, torch) = (folder.join("fetched"), folder.join("site/torch"));
    fs::create_dir_all(torch.join("lib")).unwrap();
    fs::create_dir(&fetched).unwrap();
    let stamp = fs::read_to_string(libtorch.join("set-up-from")).unwrap();
    let key = stamp.split(' ').next().unwrap();
    fs::write(fetched.join("set-up-from"), format!("{key} fetched\n")).unwrap();
    symlink(libtorch.join("lib"), fetched.join("lib")).unwrap();
    // A PyTorch of the same libraries.
    fs::write(torch.join("__init__.py"), "").unwrap();
    fs::write(torch.join("version.py"), "__version__ = '2.11.0+cu130'\n").unwrap();
    symlink(libtorch.join("include"), torch.join("include")).unwrap();
    for library in fs::read_dir(libtorch.join("lib")).unwrap().map(Result::unwrap) {
        let name = library.file_name();
        if name != "libtorch_cuda.so" {
            symlink(library.path(), torch.join("lib").join(name)).unwrap();
        }
    }
    let site = folder.join("site");
    assert!(
        set_up(&fetched, &site).ends_with("(fetched, for the CPU alone)"),
        "a PyTorch for the CPU is not linked"
    );

    let cuda = torch.join("lib/libtorch_cuda.so");
    let built = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&cuda)
        .status()
        .unwrap();
    assert!(built.success());
    let linked = format!("(linked to {}, with CUDA)", torch.display());
    for _ in 0..2 {
        let said = set_up(&fetched, &site);
        assert!(said.ends_with(&linked), "{said}");
    }
    assert_eq!(fs::read_link(fetched.join("lib")).unwrap(), torch.join("lib"));
}

/// An archive of only the preparation tools; `make dist` checks one of everything.
#[cfg(feature = "train")]
#[test]
fn a_program_works_in_an_empty_root() {
    let allowed = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("skipped: this system gives no namespaces");
        return;
    }
    let folder = &*scratch();
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_gsplit"), bin.join("gsplit")).unwrap();
    let check = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dist_check.sh");
        let done = Command::new(script).arg(folder).output().unwrap();
        (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
    };
    let needs = |libraries: &str| {
        fs::write(folder.join("INSTALL"), format!("it needs {libraries}.\n")).unwrap()
    };
    needs("libc.so.6, libgcc_s.so.1, libm.so.6");
    // Built where libtorch is, it would find that.
    let (works, told) = check();
    assert!(!works && told.contains("looks for libraries in"), "{told}");
    let program = fs::read(bin.join("gsplit")).unwrap();
    let listed = Command::new("readelf").arg("--dynamic").arg(bin.join("gsplit")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let runpath = listed
        .lines()
        .find(|line| line.contains("(RUNPATH)"))
        .unwrap()
        .split(['[', ']'])
        .nth(1)
        .unwrap();
    let at = program.windows(runpath.len()).position(|found| found == runpath.as_bytes()).unwrap();
    let mut own = b"$ORIGIN/../lib".to_vec();
    own.resize(runpath.len(), 0);
    let program = [&program[..at], &own, &program[at + runpath.len()..]].concat();
    fs::write(bin.join("gsplit"), program).unwrap();
    let (works, told) = check();
    assert!(works && told.contains("works in an empty root"), "{told}");
    needs("libc.so.6, libm.so.6");
    let (works, told) = check();
    assert!(!works && told.contains("libgcc_s.so.1: cannot open shared object file"), "{told}");
}
