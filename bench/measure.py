"""What the benchmarks share: one at a time, a child process and what it took, environments of pinned packages.

Only the standard library, and small: Linux counts the memory of the process that starts a child into the child's peak.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "bench"
MIB = 1 << 20
# Keeps freed memory, and asks for huge pages (the C library's manual, "Memory Allocation Tunables").
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "200000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


class BenchError(Exception):
    """One line: what went wrong, and what to do about it."""


def script(path):
    """The script `path` below bench/ as a module."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / "bench" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def binary():
    """The gsplit to measure: $GSPLIT, or else the release build."""
    path = Path(os.environ.get("GSPLIT") or ROOT / "target" / "release" / "gsplit").resolve()
    if not os.access(path, os.X_OK):
        raise BenchError(f"{path} is not there: run `make build`, or set GSPLIT to a gsplit")
    return path


@contextlib.contextmanager
def alone():
    """Waits until no other benchmark of this machine is timing."""
    with (Path(tempfile.gettempdir()) / "gsplit-bench.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another benchmark to end", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def arguments(description, quick, graphs):
    """--quick, which is told to do `quick`, and --graph, one or more of the names of `graphs`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--graph", action="append", metavar="NAME", help="only this graph; may be repeated")
    args = parser.parse_args()
    names = [graph.name for graph in graphs]
    unknown = set(args.graph or ()) - set(names)
    if unknown:
        parser.error(f"--graph {unknown.pop()}: expected one of {', '.join(names)}")
    return args


class Child(NamedTuple):
    """The output of a child process, and its time and memory."""

    output: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Peak resident memory, mapped files included."""
    others_cpus: float
    """CPUs that all other processes of the machine used meanwhile, on average."""
    io: dict
    """/proc/PID/io: `rchar` and `wchar` went through read and write, `read_bytes` and `write_bytes` to the disk."""


@contextlib.contextmanager
def memory_limit(num_bytes):
    """A control group of `num_bytes` of memory: its file of processes, for `run`; None where none can be made."""
    for root, name in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        folder = root / f"gsplit-bench-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / name).write_text(str(num_bytes))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        try:
            yield folder / "cgroup.procs"
        finally:
            folder.rmdir()
        return
    yield None


def run(command, *, group=None, at_most=None, **settings):
    """Runs `command` with `settings` added to the environment; its standard output is kept, its errors are shown.

    In the control group whose file of processes is `group`; killed, which is no failure, after `at_most` seconds.
    """
    command = [str(word) for word in command]
    words = ["sh", "-c", f'echo $$ > {group}; exec "$@"', "sh", *command] if group else command
    os.sync()  # nobody pays for what another has written
    busy = busy_seconds()
    start = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **settings}, text=True)
    killer = threading.Timer(at_most or 0, child.kill)
    if at_most:
        killer.start()
    with child.stdout:
        output = child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.perf_counter() - start
    io = dict(line.split(": ") for line in Path(f"/proc/{child.pid}/io").read_text().splitlines())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    killer.cancel()
    if child.returncode != 0 and not (at_most and child.returncode == -signal.SIGKILL):
        raise BenchError(f"`{' '.join(command)}` failed with exit code {child.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    others = max(0.0, busy_seconds() - busy - cpu) / seconds
    io = {name: int(count) for name, count in io.items()}
    return Child(output, seconds, cpu, usage.ru_maxrss * 1024, others, io)


def busy_seconds():
    """CPU time that the machine has spent since it booted, except in this process."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime


def environment():
    """The Python of target/bench/env, with the packages of requirements.txt; made again where those changed."""
    folder, pins = WORK / "env", Path(__file__).with_name("requirements.txt")
    python, stamp = folder / "bin" / "python", folder / "made-from"
    key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != key:
        print("making target/bench/env", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            words = [*install, "--only-binary", ":all:", "-r", pins]
            subprocess.run(words, env={**os.environ, "TMPDIR": str(WORK)}, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(f"target/bench/env cannot be made: {error}") from error
        stamp.write_text(key)
    return python


def dgl_environment():
    """The Python that `make test-peers` has DGL in; None where it cannot be installed."""
    # In a process of its own: making it takes memory, which would show in every later child's peak.
    make = [sys.executable, "-c", "import run; print(run.environment('dgl'))"]
    *told, python = run(make, PYTHONPATH=str(ROOT / "tests" / "peers")).output.splitlines()
    print("".join(f"{line}\n" for line in told), end="", file=sys.stderr, flush=True)
    return None if python == "None" else Path(python)


def need_disk(folder, num_bytes):
    """Fails where the disk of `folder` has less room."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise BenchError(f"{folder} has {free / 1e9:.1f} GB free, {num_bytes / 1e9:.1f} GB are needed: make room")


def size_of(folder):
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
