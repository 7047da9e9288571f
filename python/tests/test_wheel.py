"""The wheel that `make wheel` makes, installed where nothing else is: programs, pages, how training finds libtorch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY

LIBTORCH = Path(os.environ.get("LIBTORCH") or REPOSITORY / "libtorch")


class Installed:
    """A virtual environment with the wheel in it, and without NumPy, pyarrow and PyTorch."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        pip = f"{sys.executable} -m pip --disable-pip-version-check --python {self.bin / 'python'} install"
        subprocess.run([*pip.split(), "--quiet", "--no-deps", "--no-index", wheel], check=True)
        self.packages = next(folder.glob("lib/python3.*/site-packages"))

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), **more}
        command = [str(self.bin / words[0]), *words[1:]]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def refusal(self, *words: str) -> str:
        """The one line with which a command ends."""
        done = self.run(*words)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
        return done.stderr.strip()


@pytest.fixture(scope="module")
def installed(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = os.environ.get("GSPLIT_WHEEL")
    if made is None:
        pytest.skip("no wheel named in GSPLIT_WHEEL: `make test-python` makes one")
    if not binary.with_name("gsplit-train").is_file():
        pytest.skip(f"no gsplit-train next to {binary}: run `make build`")
    folder = tmp_path_factory.mktemp("wheel")
    wheel, share = shutil.copy(made, folder), folder / "share"
    environment = {**os.environ, "GSPLIT": str(binary)}
    subprocess.run([REPOSITORY / "scripts/share.sh", share], env=environment, check=True, stdout=subprocess.DEVNULL)
    pack: list[str | Path] = [sys.executable, REPOSITORY / "scripts/wheel.py", wheel, "--stored", "--share", share]
    packed = subprocess.run([*pack, "--programs", binary.parent], capture_output=True, text=True, check=False)
    assert packed.returncode == 0, packed.stderr
    return Installed(folder / "env", Path(packed.stdout.strip()))


@pytest.fixture
def torch(installed: Installed) -> Iterator[Path]:
    """An empty folder where the environment's PyTorch would be."""
    folder = installed.packages / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    yield folder
    shutil.rmtree(folder)


def test_the_programs_and_pages_are_installed(installed: Installed) -> None:
    assert installed.run("gsplit", "--version").stdout.startswith("gsplit ")
    share = installed.folder / "share"
    assert "gsplit-train.1" in {page.name for page in (share / "man/man1").iterdir()}
    for page in ("bash-completion/completions/gsplit", "zsh/site-functions/_gsplit"):
        assert "--fanouts" in (share / page).read_text()
    assert (share / "fish/vendor_completions.d/gsplit.fish").is_file()
    # The paths of the machine that built it are nowhere in the way of the loader.
    for program in ("gsplit", "gsplit-train.bin"):
        headers = read("readelf", "-d", installed.bin / program)
        assert "NEEDED" in headers and "RUNPATH" not in headers


def test_the_tag_says_the_glibc_that_all_of_it_needs(installed: Installed) -> None:
    tag = re.search(r"-(cp39-abi3-manylinux_2_(\d+)_x86_64)\.whl$", installed.wheel.name)
    assert tag is not None
    with zipfile.ZipFile(installed.wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")))
    assert f"Tag: {tag[1]}" in metadata.decode().splitlines()
    programs = [
        installed.bin / "gsplit",
        installed.bin / "gsplit-train.bin",
        installed.packages / "gsplit/_native.abi3.so",
    ]
    needed = re.findall(r"GLIBC_2\.(\d+)", read("objdump", "-T", *programs))
    assert int(tag[2]) == max(map(int, needed))


def read(*words: str | Path) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_without_torch_one_line_says_what_to_install(installed: Installed) -> None:
    expected = "training needs PyTorch 2.11, and .*/bin/python has none: `pip install torch==2.11.0`$"
    for words in (["gsplit", "train", "ds"], ["gsplit", "run", "ds", "--out", "o"], ["gsplit-train", "--version"]):
        assert re.match(f"error: {expected}", installed.refusal(*words))
    assert re.search(f"(?m)training +does not work: {expected}", installed.run("gsplit", "doctor").stdout)


def test_the_version_to_install_is_the_one_linked(installed: Installed) -> None:
    lock = (REPOSITORY / "scripts/libtorch.lock").read_text()
    pinned = re.search(r"^torch==(\S+)", lock, re.MULTILINE)
    assert pinned is not None and f"`pip install torch=={pinned[1]}`" in installed.refusal("gsplit", "train", "ds")


def test_another_torch_is_refused(installed: Installed, torch: Path) -> None:
    (torch / "version.py").write_text("__version__ = '2.10.0+cpu'\n")
    told = installed.refusal("gsplit", "train", "ds")
    assert told == f"error: training needs PyTorch 2.11, and {torch} is 2.10.0+cpu: `pip install torch==2.11.0`"


def test_a_torch_whose_libraries_are_missing_is_refused(installed: Installed, torch: Path) -> None:
    (torch / "version.py").write_text("__version__ = '2.11.0+cu130'\n")
    told = installed.refusal("gsplit", "train", "ds")
    assert re.search(r"cannot be loaded \(\S+\.so => not found\): `pip install --force-reinstall torch==2.11.0`$", told)


def test_training_loads_the_libtorch_of_the_environment(installed: Installed, torch: Path, tmp_path: Path) -> None:
    if not (LIBTORCH / "lib/libtorch_cpu.so").is_file():
        pytest.skip(f"no libtorch in {LIBTORCH}: run `make setup`")
    (torch / "version.py").write_text("__version__ = '2.11.0+cpu'\n")
    (torch / "lib").symlink_to(LIBTORCH / "lib")
    ds = str(tmp_path / "ds")
    made = installed.run("gsplit", "generate", "community", "--vertices", "500", "--edges", "4000", "--out", ds)
    assert made.returncode == 0, made.stderr
    options = ["--layers", "2", "--fanouts", "5,5", "--hidden", "8"]
    # `run` calls gsplit, which is next to gsplit-train.
    out = str(tmp_path / "out")
    done = installed.run("gsplit", "run", ds, "--out", out, "--", *options, "--epochs", "1")
    assert done.returncode == 0 and Path(out, "report.html").is_file(), done.stderr


def test_python_finds_the_program_that_came_with_it(installed: Installed) -> None:
    # Other imports of the package come from the environment of the tests.
    tests = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys; sys.path += {tests}; from gsplit import _commands; print(_commands._program())"
    found = installed.run("python", "-c", code, PATH="/usr/bin:/bin")
    assert found.stdout.strip() == str(installed.bin / "gsplit"), found.stderr
