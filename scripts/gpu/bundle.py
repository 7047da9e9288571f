#!/usr/bin/env python3
"""Put all that wants a GPU into one folder: built where there is none, run where there is one by its run.sh.

`make gpu-bundle` runs this. The folder needs nothing at its destination but NVIDIA's driver and a Python with PyTorch of the
pinned version, whose libraries it borrows.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUNDLE = ROOT / "target" / "gpu-bundle"
# PyG's sampler on CPUs, as source: PyPI has nothing that was built for this PyTorch. To fetch it, pip needs a Python with torch.
PEER = ("torch-scatter==2.1.2", "torch-sparse==0.6.18")
PYTHON = ROOT / "target" / "peers" / "pyg" / "bin" / "python"


def build(*words):
    """{name of the target: its executable} of one cargo command."""
    command = ["cargo", *words, "--message-format=json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if output.returncode:
        sys.exit("error: " + " ".join(["cargo", *words]) + " failed: see above")
    messages = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def main():
    tests = build("test", "--no-run", "--lib", "-p", "gsplit-kernels", "-p", "gsplit-trainer")
    bench = build("build", "--release", "-p", "gsplit-kernels", "--example", "gpu")
    binaries = build("build", "--release")
    found = {
        "tests-kernels": tests["gsplit_kernels"],
        "tests-trainer": tests["gsplit_trainer"],
        "bench": bench["gpu"],
        "gsplit": binaries["gsplit"],
        "gsplit-train": binaries["gsplit-train"],
    }
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(BUNDLE / "programs.tar.gz", "w:gz") as archive:
        for name, path in found.items():
            stripped = Path(folder, name)
            subprocess.run(["strip", "-o", stripped, path], check=True)
            archive.add(stripped, name)
    for file in (HERE / "run.sh", *(ROOT / "bench" / "gpu" / name for name in ("peer.py", "bound.py", "h200.toml"))):
        shutil.copy(file, BUNDLE)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", BUNDLE)
    if not PYTHON.exists() or subprocess.run([PYTHON, "-m", "pip", "download", *options, *PEER]).returncode:
        print("run.sh's step `peer` is without PyG's sampler, which is fetched after `make test-peers`", file=sys.stderr)
    size = sum(path.stat().st_size for path in BUNDLE.iterdir())
    print(f"{BUNDLE.relative_to(ROOT)}: {size / 1e6:.0f} MB; run its run.sh on a machine with a GPU")


if __name__ == "__main__":
    main()
