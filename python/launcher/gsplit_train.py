#!python
"""`gsplit-train` of the wheel: runs the program beside it with the libtorch of the PyTorch that is installed here.

Neither torch nor gsplit is imported: finding a folder takes a few milliseconds, importing torch takes seconds.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

# What gsplit-train was compiled for (scripts/libtorch.lock), and the releases that it runs with.
TORCH = "2.11.0"
SERIES = TORCH.rpartition(".")[0]


def main() -> NoReturn:
    """Becomes the program, or says in one line what to install."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        fail(f"training needs PyTorch {SERIES}, and {sys.executable} has none: `pip install torch=={TORCH}`")
    torch = Path(found.origin).parent
    stated = re.search(rb"^__version__ = '([^']*)'", contents(torch / "version.py"), re.MULTILINE)
    version = stated[1].decode(errors="replace") if stated else ""
    if not version.startswith(f"{SERIES}."):
        shown = version or "an unknown version"
        fail(f"training needs PyTorch {SERIES}, and {torch} is {shown}: `pip install torch=={TORCH}`")
    program = Path(__file__).resolve().with_name("gsplit-train.bin")
    folders = [str(torch / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    try:
        lacks = unloadable(program, environment)
    except OSError as error:
        fail(f"{program} cannot be started ({error.strerror}): `pip install --force-reinstall gsplit`")
    if lacks:
        fail(f"the libtorch of {torch} cannot be loaded ({lacks}): `pip install --force-reinstall torch=={TORCH}`")
    os.execve(program, [str(program.with_name("gsplit-train")), *sys.argv[1:]], environment)  # noqa: S606


def unloadable(program: Path, environment: "dict[str, str]") -> str:
    """Complaint of the loader about a library of `program`; empty where it finds all. Nothing of the program runs."""
    tried = {**environment, "LD_TRACE_LOADED_OBJECTS": "1"}
    done = subprocess.run([program], env=tried, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    lines = (done.stdout + done.stderr).splitlines()
    missing = [line.strip() for line in lines if "not found" in line or "error while loading" in line]
    return missing[0] if missing else ""


def contents(path: Path) -> bytes:
    """The bytes of a file; none where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def fail(reason: str) -> NoReturn:
    """Ends with `reason` as one line."""
    sys.exit(f"error: {reason}")


if __name__ == "__main__":
    main()
