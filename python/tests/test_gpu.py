"""Mini-batches that a GPU samples, on the fake driver that `make test` builds. Skipped without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import writer
from conftest import PACKAGE, REPOSITORY

pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
N = 3000


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that has one fake GPU."""
    drivers = (REPOSITORY / "target").glob("*/build/gsplit-gpu-sim-*/out/fake/libcuda.so")
    driver = max(drivers, key=lambda path: path.stat().st_mtime, default=None)
    if driver is None:
        pytest.skip("no fake driver: `make test` builds it")
    compilers = list((Path(os.environ.get("LIBTORCH", REPOSITORY / "libtorch")) / "lib").glob("libnvrtc*.so*"))
    if not compilers:
        pytest.skip("no NVRTC: `make setup` fetches it")
    # Not torch's libraries, which the Python of these tests may have in another version.
    folder = tmp_path / "nvrtc"
    folder.mkdir()
    for library in compilers:
        (folder / library.name).symlink_to(library)
    # Compiled kernels are kept where the tests in Rust keep them.
    return {"LD_LIBRARY_PATH": f"{driver.parent}:{folder}", "XDG_CACHE_HOME": str(driver.parents[1] / "cache")}


@pytest.fixture
def ds(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    edges = sorted({(int(u), int(v)) for u, v in rng.integers(0, N, (40_000, 2))})
    indptr, indices = writer.to_csc(edges, N)
    features, labels = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(-1, 5, N).astype(np.int32)
    splits = {"train": list(range(0, N, 2)), "valid": [1], "test": [2]}
    return writer.write_dataset(tmp_path / "ds", indptr, indices, features=features, labels=labels, splits=splits)


def run(ds: Path, task: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PACKAGE / "tests" / "gpu_batches.py"), str(ds), task]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


# Streams go on as late as they may, or by chance.
@pytest.mark.parametrize("haste", [None, "3"])
def test_differential_a_gpu_samples_what_the_cpu_does(ds: Path, fake: dict[str, str], haste: str | None) -> None:
    # Room for the graph and a few mini-batches, but not for all mini-batches of an epoch.
    variables = {**fake, "FAKE_CUDA_MEMORY_MIB": "4", **({} if haste is None else {"FAKE_CUDA_HASTE": haste})}
    done = run(ds, "native", variables)
    # Two loaders, each from the GPU's memory and from the host's, leave no device of theirs as Python's current one.
    # The driver also reports on stderr memory that is never freed.
    no_device = "fake libcuda.so: cuCtxSynchronize: this thread has no current context\n"
    assert (done.stdout, done.stderr) == ("48\n", no_device)


def test_differential_tensors_of_a_gpu_are_those_of_the_cpu(ds: Path, fake: dict[str, str]) -> None:
    pytest.importorskip("torch")
    done = run(ds, "torch", fake)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


MEMORY = "out of memory: .* MiB asked for, .* MiB free; pass topology='pinned' or 'host', or a smaller batch_size"
OTHERWISE = "; pass topology='host', with which the CPU samples"


@pytest.mark.parametrize(
    ("variable", "value", "asked", "line"),
    [
        # Not for the graph, and not for a mini-batch.
        ("FAKE_CUDA_MEMORY_MIB", "0", True, MEMORY),
        ("FAKE_CUDA_MEMORY_MIB", "1", True, MEMORY),
        ("FAKE_CUDA_POOLS", "0", False, f"GPU 0 has no memory pools: .*{OTHERWISE}"),
        ("FAKE_CUDA_DEVICES", "0", False, f".*{OTHERWISE}"),
    ],
)
def test_a_gpu_that_cannot_sample_is_one_line(
    ds: Path, fake: dict[str, str], variable: str, value: str, asked: bool, line: str
) -> None:
    done = run(ds, "native", {**fake, variable: value})
    assert ("torch gives back" in done.stdout) == asked
    assert done.returncode == 1 and re.fullmatch(f"refused: {re.escape(str(ds))}: .*{line}\n", done.stderr), done.stderr
