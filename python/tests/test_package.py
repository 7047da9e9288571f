"""The README's example runs, and the wheel holds every module and the type marker."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import six_vertices as six
import writer
from hatchling.builders.wheel import WheelBuilder

PACKAGE = Path(__file__).resolve().parents[1]


def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = six.write_full(tmp_path / "arxiv")
    six.write_presample(path, "15,10,5".replace(",", "-"))
    six.write_partition(path, "metis-4")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(examples) == 1
    names: dict[str, Any] = {}
    exec(examples[0], names)
    assert names["x"].tolist() == six.FEATURES[[0, 3]].tolist()


def test_the_wheel_holds_the_package(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(PACKAGE)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("gsplit/")}
    sources = {f"gsplit/{path.name}" for path in (PACKAGE / "src/gsplit").iterdir() if path.is_file()}
    assert held == sources and "gsplit/py.typed" in held


def test_the_writer_rounds_bf16_to_even() -> None:
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], np.float32)
    assert (writer.to_bf16(halves).astype(np.uint32) << 16).view(np.float32).tolist() == [1, 1 + 2**-6, -1]
