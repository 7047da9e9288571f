#!/usr/bin/env python3
"""Put all that wants a GPU into one folder: built where there is none, run where there is one by its run.sh.

`make gpu-bundle` runs this. The folder needs nothing at its destination but NVIDIA's driver and a Python with PyTorch of the
pinned version, whose libraries it borrows.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUNDLE = ROOT / "target" / "gpu-bundle"
# PyG's sampler on CPUs: PyPI has nothing that was built for this PyTorch, and to build it takes a Python with torch.
PEER = ("torch-scatter==2.1.2", "torch-sparse==0.6.18")
# Bytes that a borrowed machine takes.
LIMIT = 64 << 20
PYTHON = ROOT / "target" / "peers" / "pyg" / "bin" / "python"


def build(*words):
    """{name of the target: its executable, or Python module} of one cargo command."""
    command = ["cargo", *words, "--message-format=json-render-diagnostics"]
    # The module then finds the symbols of whichever Python imports it, as in a wheel, in place of this machine's libpython.
    environment = os.environ | {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
    if output.returncode:
        sys.exit("error: " + " ".join(["cargo", *words]) + " failed: see above")
    messages = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    library = ["cdylib"]
    made = [message for message in messages if message.get("executable") or message.get("target", {}).get("kind") == library]
    return {message["target"]["name"]: message["executable"] or message["filenames"][0] for message in made}


def size(folder, limit=LIMIT):
    """Bytes of all files of `folder`, which a machine takes up to `limit` of."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    if sum(sizes.values()) > limit:
        largest = sorted(sizes, key=sizes.get, reverse=True)[:3]
        told = ", ".join(f"{path.relative_to(folder)} {sizes[path] / 1e6:.1f} MB" for path in largest)
        sys.exit(f"error: {folder}: {sum(sizes.values()) / 1e6:.1f} MB, more than {limit / 1e6:.1f} MB: {told}")
    return sum(sizes.values())


def strip(program, copy):
    subprocess.run(["strip", "-o", copy, program], check=True)


def peer(site):
    """Builds PyG's sampler in the folder `site`, for any version of Python. Returns whether that went well."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--target", site)
    built = subprocess.run([PYTHON, "-m", "pip", "install", *options, *PEER], env=os.environ | {"FORCE_ONLY_CPU": "1"})
    # They register operators with torch, and call nothing of Python's.
    for library in site.rglob("*.cpython-*.so"):
        strip(library, library.with_name(library.name.split(".")[0] + ".so"))
        library.unlink()
    return built.returncode == 0


def main():
    tests = build("test", "--no-run", "--lib", "--workspace")
    release = build("build", "--release", "--workspace", "--lib", "--bins", "--example", "gpu")
    found = {
        "tests-kernels": tests["gsplit_kernels"],
        "tests-trainer": tests["gsplit_trainer"],
        "bench": release["gpu"],
        "gsplit": release["gsplit"],
        "gsplit-train": release["gsplit-train"],
    }
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(BUNDLE / "programs.tar.gz", "w:gz") as archive:
        for name, path in found.items():
            strip(path, Path(folder, name))
            archive.add(Path(folder, name), name)
    scripts = [HERE / "run.sh", HERE / "second.sh", HERE / "torch.sh", ROOT / "python" / "examples" / "split.py"]
    measures = [HERE / f"{name}.py" for name in ("bound", "loader", "peer", "pool_probe", "torch_peer")]
    for file in (*scripts, *measures, *HERE.glob("*.toml")):
        shutil.copy(file, BUNDLE)
    package = BUNDLE / "python" / "gsplit"
    shutil.copytree(ROOT / "python" / "src" / "gsplit", package, ignore=shutil.ignore_patterns("__pycache__"))
    strip(release["_native"], package / "_native.abi3.so")
    kernels = ROOT / "kernels" / "src"
    for file in (*kernels.glob("*/*.cu"), *kernels.glob("*/*.cuh")):
        copy = BUNDLE / "kernels" / file.relative_to(kernels)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    if not PYTHON.exists() or not peer(BUNDLE / "site"):
        print("the steps `peer` and `pyg` are without PyG's sampler, which is built after `make test-peers`", file=sys.stderr)
    print(f"{BUNDLE.relative_to(ROOT)}: {size(BUNDLE) / 1e6:.1f} MB of at most {LIMIT / 1e6:.1f}; run its run.sh on a machine with a GPU")


if __name__ == "__main__":
    main()
