"""The README's example and the notebooks run, and the wheel holds every module, the extension and the type marker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import six_vertices as six
import writer
from conftest import PACKAGE

import gsplit


def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = six.write_full(tmp_path / "arxiv")
    six.write_presample(path, "15,10,5".replace(",", "-"))
    six.write_partition(path, "metis-4")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(readme_examples()[0], names)
    assert names["x"].tolist() == six.FEATURES[[0, 3]].tolist()


def readme_examples() -> list[str]:
    examples = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(examples) == 3
    return examples


def test_the_readme_examples_of_training_run(commands: Path) -> None:
    pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
    gsplit.generate("community", "arxiv", vertices=500, edges=4000, feature_dim=8, quiet=True)
    names: dict[str, Any] = {"gsplit": gsplit, "ds": gsplit.open("arxiv")}
    for example in readme_examples()[1:]:
        exec(example, names)
    assert Path("predictions.npy").is_file() and len(names["seeds"]) == len(names["y"]) > 0


def test_the_wheel_holds_the_package() -> None:
    wheel = os.environ.get("GSPLIT_WHEEL")
    if wheel is None:
        pytest.skip("no wheel named in GSPLIT_WHEEL: `make test-python` makes one")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("gsplit/")}
    package = PACKAGE / "src"
    files = (path for path in (package / "gsplit").rglob("*") if path.is_file() and path.suffix != ".pyc")
    sources = {str(path.relative_to(package)) for path in files}
    assert held == {*sources, "gsplit/_native.abi3.so"} and {"gsplit/py.typed", "gsplit/_native.pyi"} < held
    assert "cp39-abi3-" in wheel


def test_the_version_is_the_packages() -> None:
    assert f'version = "{gsplit.__version__}"' in (PACKAGE / "pyproject.toml").read_text()


def python(script: str) -> subprocess.CompletedProcess[str]:
    """Runs `script` in a process of its own, with the modules of this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def test_importing_brings_nothing_that_is_slow() -> None:
    heavy = "torch", "torch_geometric", "dgl", "pyarrow", "scipy", "pandas", "gsplit._native"
    done = python(f"import sys, gsplit; print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_the_stubs_name_what_the_extension_has() -> None:
    native = pytest.importorskip("gsplit._native")
    stubs = (PACKAGE / "src/gsplit/_native.pyi").read_text()
    classes = re.findall(r"^class (\w+):\n(.*?)(?=^@final|\Z)", stubs, re.DOTALL | re.MULTILINE)
    expected = "Moved", "Pairs", "GpuArray", "Layer", "ByType", "Batch", "Epoch", "Loader"
    assert tuple(name for name, _ in classes) == expected
    for name, body in classes:
        promised = {*re.findall(r"^    (\w+): ", body, re.MULTILINE), *re.findall(r"    def (\w+)", body)}
        has = vars(getattr(native, name))
        assert promised == {key for key in has if key in promised or not key.startswith("__")}, name


ACCURACIES = {"loader.ipynb": 2, "torch.ipynb": 1, "torchrun.ipynb": 2}


@pytest.mark.parametrize("path", sorted((PACKAGE / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_the_notebooks_run(path: Path, commands: Path) -> None:
    """Cells of code run in their order, in a process of their own."""
    pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
    if path.name.startswith("torch"):
        pytest.importorskip("torch")
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    done = python("\n".join("".join(cell["source"]) for cell in cells))
    assert done.returncode == 0, done.stderr
    accuracies = [float(part) for part in re.findall(r"accuracy ([01]\.\d+)", done.stdout)]
    assert len(accuracies) == ACCURACIES[path.name] and min(accuracies) > 0.9, done.stdout


def test_the_writer_rounds_bf16_to_even() -> None:
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], np.float32)
    assert (writer.to_bf16(halves).astype(np.uint32) << 16).view(np.float32).tolist() == [1, 1 + 2**-6, -1]
