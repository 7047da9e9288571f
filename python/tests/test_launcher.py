"""The launcher `gsplit-train` of the wheel, on installations that are not whole: each ends in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY


def launch(folder: Path, version: bytes | None, program: bytes | None, mode: int = 0o755) -> str:
    """The line with which the launcher ends next to `program`, with a torch whose version.py is `version`."""
    launcher = shutil.copy(REPOSITORY / "python/launcher/gsplit_train.py", folder / "gsplit-train")
    torch = folder / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise ImportError('nobody imports it')")
    if version is not None:
        (torch / "version.py").write_bytes(version)
    if program is not None:
        binary = folder / "gsplit-train.bin"
        binary.write_bytes(program)
        binary.chmod(mode)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, launcher, "--version"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr.strip()


@pytest.mark.parametrize(
    "version", [b"\xff\xfe__version__", b"", b"__version__ = '1.0'\n", b"__version__ = '\xff'\n", None]
)
def test_a_torch_of_another_version_is_named(tmp_path: Path, version: bytes | None) -> None:
    assert launch(tmp_path, version, b"").startswith("error: training needs PyTorch 2.11, and ")


@pytest.mark.parametrize(("program", "mode"), [(b"\x7fELF", 0o644), (b"\x7fELF", 0o755), (b"", 0o755), (None, 0)])
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, program: bytes | None, mode: int) -> None:
    # Bytes that are not UTF-8 elsewhere in the file do not hide the version.
    line = launch(tmp_path, b"# \xff\n__version__ = '2.11.0'\n", program, mode)
    assert "gsplit-train.bin cannot be started (" in line and "`pip install --force-reinstall gsplit`" in line
