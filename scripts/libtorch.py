#!/usr/bin/env python3
"""Put the libtorch that the crate `tch` needs, and the compiler of CUDA kernels, into libtorch/{lib,include}; `make setup` runs this.

A PyTorch of the pinned version that is already installed is linked. Otherwise pip fetches the wheels of
libtorch.lock, checks their hashes, and only what the build needs is unpacked. Nothing is imported from torch.

Everything is prepared in a sibling folder and renamed into place, so a run that is killed leaves nothing half done.
The stamp inside names the lock file it was made from: a second run sees it and stops, unless what is there was fetched, which is for
the CPU alone, and a PyTorch for CUDA has been installed since.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "libtorch.lock"
STAMP = "set-up-from"

# Not libtorch_cuda and its kin: 3 GB with the libraries it loads in turn.
LIBRARIES = {"libtorch.so", "libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}
LIBRARIES |= {"libnvrtc.so.13", "libnvrtc-builtins.so.13.0"}
HEADERS = "torch/include/"
# pip matches each of these literally against the tags in a wheel's name.
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux_2_17_x86_64", "manylinux_2_12_x86_64"]
DISK_BYTES = 2_000_000_000  # the wheels, pip's own copy of them, and what is unpacked


class SetupError(Exception):
    """One line: the problem and its remedy."""


def say(text):
    print(f"libtorch: {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Set up libtorch for the build.")
    parser.add_argument("destination", nargs="?", type=Path, default=HERE.parent / "libtorch")
    parser.add_argument("--fetch", action="store_true", help="fetch the pinned wheels even where PyTorch is installed")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("libtorch: stopped; nothing was changed"))
    try:
        if os.environ.get("LIBTORCH") and not args.fetch:
            use_given(Path(os.environ["LIBTORCH"]))
        else:
            set_up(args.destination.absolute(), args.fetch)
    except SetupError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: setting up libtorch failed: {error}; mend that and run `make setup` again")
    except KeyboardInterrupt:
        sys.exit("\nlibtorch: interrupted; nothing was changed")


def use_given(given):
    """The caller's own libtorch: cargo prefers an exported LIBTORCH to the one in .cargo/config.toml."""
    if not given.is_absolute() or not (given / "lib" / "libtorch_cpu.so").is_file():
        raise SetupError(
            f"LIBTORCH is set to {given}, which is not the full path of a libtorch (no lib/libtorch_cpu.so): "
            "correct it, or unset it and run `make setup` again"
        )
    say(f"using {given}, as LIBTORCH says")


def set_up(destination, must_fetch):
    work = destination.with_name(destination.name + ".part")
    with LOCK.open("rb") as lock:
        pins = lock.read()
        version = re.search(rb"^torch==(\S+)", pins, re.MULTILINE).group(1).decode()
        key = hashlib.sha256(pins).hexdigest()
        if is_current(destination, version, key, must_fetch):
            return say(f"PyTorch {version} is ready in {destination} ({origin_of(destination)})")
        fcntl.flock(lock, fcntl.LOCK_EX)  # two set-ups at once: the second waits here, then finds it done
        if is_current(destination, version, key, must_fetch):
            return say(f"PyTorch {version} is ready in {destination} ({origin_of(destination)})")
        if destination.exists() and not (destination / STAMP).is_file():
            raise SetupError(
                f"{destination} was not made by `make setup`: move it away, or export LIBTORCH={destination}"
            )

        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            (work / ".gitignore").write_text("*\n")
            tree = work / "tree"
            origin = None if must_fetch else link_installed(tree, version)
            if origin is None:
                fetch(work, tree, version)
                origin = "fetched"
            (tree / "build-version").write_text(version + "\n")  # tch's build script compares it with its own
            (tree / STAMP).write_text(f"{key} {origin}\n")
            if destination.exists():
                destination.rename(work / "old")
            tree.rename(destination)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    say(f"PyTorch {version} is ready in {destination} ({origin_of(destination)})")


def is_current(destination, version, key, must_fetch):
    try:
        made_from, origin = stamp(destination)
    except (OSError, ValueError):
        return False
    # A linked PyTorch may have been uninstalled since.
    if made_from != key or not (destination / "lib" / "libtorch_cpu.so").is_file():
        return False
    if origin != "fetched":
        return not must_fetch
    return must_fetch or torch_to_link(version, must_have_cuda=True) is None


def stamp(destination):
    """The key that `destination` was made from, and its origin."""
    return (destination / STAMP).read_text().strip().split(" ", 1)


def origin_of(destination):
    """The source of `destination`, and its purpose."""
    what = "with CUDA" if has_cuda(destination) else "for the CPU alone"
    return f"{stamp(destination)[1]}, {what}"


def has_cuda(torch):
    return (torch / "lib" / "libtorch_cuda.so").is_file()


# --- a PyTorch that is already installed ---


def link_installed(tree, version):
    """Link an installed PyTorch of this version into `tree` and return its place, or None if there is nothing usable."""
    torch = torch_to_link(version)
    if torch is None:
        return None
    tree.mkdir()
    for folder in ("lib", "include"):
        (tree / folder).symlink_to(torch / folder)
    return f"linked to {torch}"


def torch_to_link(version, must_have_cuda=False):
    """The package folder of an installed PyTorch of this version that the build can use; None without one."""
    torch = installed_torch()
    if torch is None or (must_have_cuda and not has_cuda(torch)):
        return None
    found = re.search(r"^__version__ = '([^'+]*)", (torch / "version.py").read_text(), re.MULTILINE)
    if found is None or found.group(1) != version:
        return None
    fault = fault_of(torch)
    if fault is not None:
        say(f"not using the PyTorch in {torch}: {fault}")
        return None
    return torch


def installed_torch():
    """The package folder of the PyTorch that $GSPLIT_PYTHON, or else this Python, would import; None without one."""
    python = os.environ.get("GSPLIT_PYTHON") or sys.executable
    probe = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s and s.origin else '')"
    try:
        answer = subprocess.run([python, "-c", probe], cwd="/", check=True, stdout=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"the Python {python} cannot be run ({error}): correct or unset GSPLIT_PYTHON")
    origin = answer.stdout.strip()
    return Path(origin).parent if origin and (Path(origin).parent / "version.py").is_file() else None


def fault_of(tree):
    """Why the build could not use the libtorch in `tree`, or None."""
    if not (tree / "include/torch/csrc/api/include/torch/torch.h").is_file():
        return "its C++ headers are missing"
    libraries = [tree / "lib" / name for name in ("libc10.so", "libtorch_cpu.so", "libtorch.so")]
    if not all(library.is_file() for library in libraries):
        return "its libraries are missing"
    # tch compiles its C++ with the new ABI of std::string, and would fail to link with the old one.
    if b"torchCheckFailEPKcS2_jRKNSt7__cxx11" not in libraries[0].read_bytes():
        return "it was built with the old C++ ABI"
    answer = subprocess.run(["ldd", *map(str, libraries)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    unresolved = sorted(set(re.findall(r"(\S+) => not found", answer.stdout)))
    if answer.returncode or unresolved:
        return "it needs " + (", ".join(unresolved) or "libraries that ldd cannot list")
    return None


# --- the pinned wheels ---


def fetch(work, tree, version):
    check_machine(work)
    pip = find_pip(work)
    say(f"fetching PyTorch {version} (four wheels, 635 MB)")
    wheels = work / "wheels"
    command = [*pip, "--disable-pip-version-check", "--no-input", "download", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
    command += [word for tag in PLATFORMS for word in ("--platform", tag)]
    command += ["--requirement", str(LOCK), "--dest", str(wheels)]
    # /tmp may be small, and what pip leaves behind there when killed would stay.
    if subprocess.run(command, env={**os.environ, "TMPDIR": str(work)}).returncode:
        raise SetupError("pip could not fetch libtorch (it says why above): mend that and run `make setup` again")
    say("unpacking")
    for wheel in sorted(wheels.iterdir()):
        unpack(wheel, tree)
    missing = sorted(name for name in LIBRARIES if not (tree / "lib" / name).is_file())
    if missing:
        raise SetupError(f"the wheels of {LOCK} hold no {', '.join(missing)}: do not edit it by hand, restore it")


def check_machine(work):
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise SetupError(
            f"no libtorch is pinned for {system} {machine}, only for Linux x86_64: install PyTorch here yourself, "
            "or build without training (cargo build --no-default-features)"
        )
    libc, libc_version = platform.libc_ver()
    if libc != "glibc" or tuple(map(int, libc_version.split("."))) < (2, 28):
        found = f"glibc {libc_version}" if libc == "glibc" else "another C library"
        raise SetupError(f"libtorch needs glibc 2.28 or newer, and this machine has {found}: use a newer Linux")
    free = shutil.disk_usage(work).free
    if free < DISK_BYTES:
        raise SetupError(f"{work.parent} has {free / 1e9:.1f} GB free, and setting up libtorch needs 2 GB: make room")


def unpack(wheel, tree):
    """Copy the libraries and headers of one wheel to tree/lib and tree/include."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            folder, _, base = name.rpartition("/")
            if name.startswith(HEADERS) and base:
                target = tree / "include" / name[len(HEADERS) :]
            elif folder.endswith("/lib") and base in LIBRARIES:
                target = tree / "lib" / base
            else:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


# --- pip, which Debian and Ubuntu leave out of their Python ---


def find_pip(work):
    """The words that run pip: this Python's, or one that lives in `work` and goes with it."""
    for candidate in (python_pip, venv_pip, debian_pip):
        command = candidate(work)
        if command and quiet([*command, "--version"]):
            return command
    raise SetupError(
        "this Python has no pip: install it (Debian and Ubuntu: sudo apt-get install python3-pip), "
        "then run `make setup` again"
    )


def python_pip(_work):
    return [sys.executable, "-m", "pip"]


def venv_pip(work):
    venv = work / "venv"
    return [str(venv / "bin" / "python"), "-m", "pip"] if quiet([sys.executable, "-m", "venv", str(venv)]) else None


def debian_pip(work):
    """The pip that Debian keeps for virtual environments, fetched with private package lists and not installed."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return None
    say("this Python has no pip: borrowing the one of package python3-pip-whl")
    debs = work / "debs"
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (debs / folder).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::State={debs}/state", "-o", f"Dir::Cache={debs}/cache"]
    if os.geteuid() == 0:
        apt += ["-o", "APT::Sandbox::User=root"]  # else apt drops to a user that cannot write here
    packages = ["python3-pip-whl"]
    # Ubuntu 22.04 leaves out most of this module too, and its pip imports it.
    needs_distutils = sys.version_info < (3, 12) and not quiet([sys.executable, "-c", "import distutils.cmd"])
    if needs_distutils:
        packages.append("python3-distutils")
    if not quiet([*apt, "update"]) or not quiet([*apt, "download", *packages], cwd=debs):
        return None
    root = debs / "root"
    if not all(quiet(["dpkg", "-x", str(deb), str(root)]) for deb in debs.glob("*.deb")):
        return None
    for wheel in (root / "usr/share/python-wheels").glob("pip-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(debs)
    if needs_distutils:
        kept = Path(sysconfig.get_path("stdlib")) / "distutils"
        for half in (kept, root / kept.relative_to("/")):
            shutil.copytree(half, debs / "distutils", dirs_exist_ok=True)
    return [sys.executable, str(debs / "pip")]


def quiet(command, cwd=None):
    """Whether the command ran and succeeded; it is one way of several, so its complaints are not shown."""
    try:
        return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    main()
