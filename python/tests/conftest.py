"""The golden dataset, and the gsplit binary where there is one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import six_vertices as six

import gsplit

PACKAGE = Path(__file__).resolve().parents[1]
REPOSITORY = PACKAGE.parent


def in_a_fork(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a process that is forked from this one."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def flip_bits(good: bytes, step: int, read: Callable[[bytes], None]) -> None:
    """Reads `good` with one bit in `step` flipped: as it should be, or refused in one line, as most are."""
    refused = 0
    for bit in range(0, len(good) * 8, step):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        try:
            read(bytes(bad))
        except gsplit.DatasetError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 100


@pytest.fixture
def golden(tmp_path: Path) -> gsplit.Dataset:
    """The dataset of 6 vertices with everything there can be."""
    path = six.write_full(tmp_path / "six")
    six.write_presample(path)
    six.write_partition(path)
    return gsplit.open(path)


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gsplit binary: `GSPLIT`, or the one that cargo built. Skips if none writes version 2."""
    given = os.environ.get("GSPLIT")
    built = [REPOSITORY / "target" / profile / "gsplit" for profile in ("release", "debug")]
    binary = next((path for path in ([Path(given)] if given else built) if path.is_file()), None)
    if binary is None:
        if given:
            pytest.fail(f"GSPLIT={given}: no such file")
        pytest.skip("no gsplit binary: run `make build`, or name it in GSPLIT")

    probe = tmp_path_factory.mktemp("probe") / "ds"
    generate = ["generate", "community", "--vertices", "50", "--edges", "100", "--quiet", "--out"]
    subprocess.run([binary, *generate, probe], check=True)
    version = json.loads((probe / "dataset.json").read_text())["format_version"]
    if version != 2:
        pytest.skip(f"{binary} writes format version {version}, expected 2: run `make build`")
    return binary.resolve()


@pytest.fixture(scope="session")
def run(binary: Path) -> Callable[..., str]:
    """Runs the gsplit binary and gives its standard output."""

    def run(*arguments: str | Path) -> str:
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def commands(binary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, where `gsplit.convert` and its kin run the binary. Skips where it does not train."""
    if not binary.with_name("gsplit-train").is_file():
        pytest.skip(f"no gsplit-train next to {binary}: run `make build`")
    monkeypatch.setenv("GSPLIT", str(binary))
    monkeypatch.chdir(tmp_path)
    return tmp_path
