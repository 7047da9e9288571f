#!/usr/bin/env python3
"""Files of other tools come out of gsplit equal to an independent parse; exports of gsplit, and what training leaves, are opened by the tools they are for; OGB's splits of links are read and scored as OGB does; torchrun and mpirun start ranks: run.py GSPLIT (`make test-peers`).

Two virtual environments with pinned versions are made in target/peers, once; datasets are made and exported there, and
check_*.py compares what the tools read with the dataset's own files. One line a check; ends at the first that fails. Where
an environment cannot be installed, as without a network, its checks are skipped and that is said.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import cuda_stubs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "peers"
FORMATS = {
    "pyg": "pyg",
    "parquet": "parquet",
    "metis": "metis.graph",
    "mtx": "graph.mtx",
}
# Real graphs, where this machine has them.
REAL = Path(os.environ.get("GSPLIT_DATA", ROOT.parent / "shared/data"))


def environment(name):
    """The interpreter of an environment, made where it is not there or its pins changed. None where it cannot be made."""
    folder, pins, log = WORK / name, HERE / f"requirements-{name}.txt", WORK / f"{name}.log"
    key = hashlib.sha256(pins.read_bytes() + Path(cuda_stubs.__file__).read_bytes() + sys.version.encode()).hexdigest()
    stamp, python = folder / "made-from", folder / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == key:
        return python
    print(f"making  the environment {name} (pip writes to {log.relative_to(ROOT)})", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        venv.create(folder, with_pip=True)
        with log.open("w") as output:
            install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "-r", pins]
            subprocess.run(install, stdout=output, stderr=subprocess.STDOUT, check=True)
        (library,) = folder.glob("lib/python3.*/site-packages/torch/lib")
        cuda_stubs.write_stubs(library)
        subprocess.run([python, "-c", "import torch; assert not torch.cuda.is_available()"], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        lines = log.read_text().splitlines() if log.is_file() else []
        why = next((line for line in reversed(lines) if line.startswith("ERROR")), str(error))
        print(f"skipped everything in the environment {name}: {why} (see {log.relative_to(ROOT)})", flush=True)
        return None
    stamp.write_text(key)
    return python


def gsplit(binary, *arguments):
    subprocess.run([binary, "--quiet", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def make_datasets(binary, folder):
    """Paths of the datasets."""
    generated = folder / "community"
    size = ["--vertices", 3000, "--edges", 24000, "--seed", 7]
    gsplit(binary, "generate", "community", *size, "--out", generated)
    # Features that the generator lacks: edge columns, several classes a vertex, original ids, parallel edges.
    test = ["cargo", "test", "--quiet", "--workspace", "--lib", "leave_examples_for_the_peers"]
    log = folder / "examples.log"
    with log.open("w") as output:
        environment = {**os.environ, "GSPLIT_PEERS": str(folder)}
        subprocess.run([*test, "--", "--ignored"], cwd=ROOT, env=environment, check=True, stdout=output, stderr=output)
    return [generated, *(folder / name for name in ("single", "multi", "bare"))]


def export(binary, dataset, folder):
    for name, out in FORMATS.items():
        gsplit(binary, "export", dataset, "--format", name, "--out", folder / out)
    for out in ("edges.txt", "edges.txt.gz"):
        gsplit(binary, "export", dataset, "--format", "snap", "--out", folder / out)


def train(binary, dataset, run):
    """A run that was killed after an epoch that its checkpoints do not know, and resumed; one that meets a plateau."""
    run.mkdir()
    size = ["--parallelism", "single", "--layers", 2, "--fanouts", "5,5", "--hidden", 16, "--batch-size", 256]
    logs = ["--log", run / "log.jsonl", "--tensorboard", run / "tb", "--log-every", 2]
    decay = ["--schedule", "cosine", "--min-lr", 0.001, "--decay-epochs", 6, "--checkpoint", run / "checkpoints"]
    whole = ["train", dataset, *size, *logs, *decay, "--lr", 0.01]
    gsplit(binary, *whole, "--epochs", 4)
    shutil.rmtree(run / "checkpoints/epoch-00004")
    gsplit(binary, *whole, "--epochs", 6, "--resume")
    plateau = ["--schedule", "plateau", "--gamma", 0.5, "--lr-patience", 1, "--lr", 0.02, "--epochs", 30]
    gsplit(binary, "train", dataset, *size, *plateau, "--log", run / "plateau.jsonl")


def train_links(binary, folder):
    """What check_links.py compares: each of its datasets converted, a model trained on it, and all rows."""
    size = ["--parallelism", "data", "--ranks", 2, "--layers", 2, "--fanouts", "10,5", "--hidden", 16, "--epochs", 4]
    for name in ("collab", "citation"):
        dataset, run = folder / f"{name}-ds", folder / f"{name}-run"
        gsplit(binary, "convert", folder / name, "--out", dataset, "--symmetrise")
        logs = ["--log", folder / f"{name}.jsonl", "--checkpoint", run, "--lr", 0.01]
        gsplit(binary, "train", dataset, "--task", "link", *size, *logs)
        gsplit(binary, "infer", dataset, "--checkpoint", run / "epoch-00004", "--embeddings", folder / f"{name}.npy")


def run_check(python, script, *arguments):
    if python is None:
        return
    settings = {"DGLBACKEND": "pytorch", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([python, HERE / script, *map(str, arguments)], env={**os.environ, **settings}, check=False)
    if done.returncode != 0:
        sys.exit(f"FAILED  {script} {' '.join(map(str, arguments))}")


def check_package(python, binary, *tests):
    """The Python package's own `tests` that need torch, and PyG or DGL."""
    if python is None:
        return
    (wheel,) = ROOT.glob("target/python/wheel/*.whl")
    install = ["pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps", wheel]
    subprocess.run([python, "-m", *install], check=True)
    tests = ["pytest", "--quiet", "--override-ini", "pythonpath=tests", *tests]
    settings = {"GSPLIT": str(binary), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([python, "-m", *tests], cwd=ROOT / "python", env={**os.environ, **settings}, check=True)


def main(binary):
    binary = Path(binary).resolve()
    data = WORK / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    dgl, pyg = environment("dgl"), environment("pyg")
    if dgl is None and pyg is None:
        return
    for dataset in make_datasets(binary, data):
        exports = data / f"{dataset.name}-exports"
        exports.mkdir()
        export(binary, dataset, exports)
        run_check(dgl, "check_files.py", dataset, exports)
        run_check(pyg, "check_pyg.py", dataset, exports / "pyg")
    check_package(dgl, binary, "tests/test_frameworks.py")
    if pyg is not None:
        train(binary, data / "community", data / "run")
        run_check(pyg, "check_training.py", data / "community", data / "run")
        links = data / "links"
        run_check(pyg, "check_links.py", "write", links)
        train_links(binary, links)
        run_check(pyg, "check_links.py", "check", links)
        check_package(pyg, binary, "tests/test_torch.py", "tests/test_frameworks.py", "tests/test_recipes.py")
        run_check(pyg, "check_launchers.py", binary, data / "community")
        real = [REAL] if REAL.is_dir() else []
        run_check(pyg, "check_readers.py", binary, data / "read", *real)
    print("the peers read every export, except the ones marked skipped above")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: run.py GSPLIT")
    main(sys.argv[1])
