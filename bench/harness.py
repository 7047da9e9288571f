"""The parts that all benchmarks share: child processes and their cost, interleaved rounds, medians,
environments, results.

It uses only the standard library and little memory: Linux counts the memory of a parent process
into the peak of its child.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path
from typing import NamedTuple

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
WORK = ROOT / "target" / "bench"
DATA = WORK / "data"
PEERS, INPUTS = BENCH / "peers", BENCH / "inputs"
EXAMPLES = ROOT / "target" / "release" / "examples"
# The folder of real graphs.
REAL = Path(os.environ.get("DATA") or ROOT.parent / "shared" / "data")
MIB = 1 << 20
# Keeps freed memory, and asks for huge pages: the C library's "Memory Allocation Tunables".
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "200000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


class BenchError(Exception):
    """One line: the failure, and its remedy."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def binary():
    """The gsplit to measure: $GSPLIT, or else the release build."""
    path = Path(os.environ.get("GSPLIT") or ROOT / "target" / "release" / "gsplit").resolve()
    if not os.access(path, os.X_OK):
        raise BenchError(f"{path} is not there: run `make build`, or set GSPLIT to a gsplit")
    return path


# Child processes.


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
    """/proc/PID/io; `read_bytes` and `write_bytes` are of the disk."""

    def json(self):
        """The object in the last line of the output."""
        return json.loads(self.output.splitlines()[-1])


def run(command, *, group=None, at_most=None, **settings):
    """Runs `command` with `settings` added to the environment; its errors are shown.

    `group` is the file of processes of a control group. After `at_most` seconds the child is
    killed, which is not an error.
    """
    command = [str(word) for word in command]
    words = ["sh", "-c", f'echo $$ > {group}; exec "$@"', "sh", *command] if group else command
    os.sync()  # nobody pays for the writes of another contender
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
    return Child(output, seconds, cpu, usage.ru_maxrss * 1024, others, {name: int(count) for name, count in io.items()})


def gsplit(*words, **options):
    """Runs gsplit with `words`."""
    return run([binary(), *words], **options)


def busy_seconds():
    """CPU time that the machine has spent since it booted, except in this process."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime


@contextlib.contextmanager
def alone():
    """Waits until no other benchmark of this machine is timing."""
    with (Path(tempfile.gettempdir()) / "gsplit-bench.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another benchmark to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def memory_limit(num_bytes):
    """A control group of `num_bytes` of memory: its file of processes, or None if none can be made."""
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


# Rounds, medians and results.


class Runs(dict):
    """{contender: [values of a round by name]}."""

    def column(self, contender, field):
        return [run[field] for run in self[contender]]

    def median(self, contender, field):
        return statistics.median(self.column(contender, field))

    def span(self, contender, field):
        """The least and the largest value of a field."""
        found = self.column(contender, field)
        return f"{format_cell(min(found))} to {format_cell(max(found))}"

    def least(self, among, field):
        """The contender among `among` whose median is the least; None if none was measured."""
        return min((each for each in among if each in self), key=lambda each: self.median(each, field), default=None)

    def alike(self, field, within):
        """Fails if a value differs from another by more than the portion `within`."""
        found = [run[field] for runs in self.values() for run in runs if field in run]
        if max(found) > (1 + within) * min(found):
            raise BenchError(f"contenders did different work: {field} from {min(found):g} to {max(found):g}")


class Table:
    """A table of results: rows, the commands and the raw runs that they come from."""

    def __init__(self, title, *columns):
        self.title, self.columns, self.rows, self.commands, self.notes, self.runs = title, columns, [], [], [], Runs()

    def interleave(self, contenders, rounds, measure):
        """Calls `measure(contender)`, which returns a dict or None, for all contenders of each round."""
        runs = Runs()
        for turn in range(rounds):
            for contender in contenders:
                values = measure(contender)
                if values is None:
                    continue
                runs.setdefault(contender, []).append(values)
                field, value = next(iter(values.items()))
                say(f"{self.title}, round {turn + 1}: {label(contender)}: {field} {format_cell(value)}")
        self.runs.update({label(contender): found for contender, found in runs.items()})
        return runs

    def add(self, *cells):
        self.rows.append(list(cells))

    def show(self):
        print(f"\n{self.title}\n\n| {' | '.join(self.columns)} |\n|{' --- |' * len(self.columns)}")
        for row in self.rows:
            print("|", " | ".join(map(format_cell, row)), "|")
        print(flush=True)


def spearman(one, other):
    """The rank correlation of two lists of values."""
    places = [[sorted(values).index(value) for value in values] for values in (one, other)]
    n = len(one)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*places)) / (n * (n * n - 1)) if n > 1 else 1.0


def label(contender):
    return ", ".join(map(str, contender)) if isinstance(contender, tuple) else str(contender)


class Results:
    """The tables of a benchmark; each is printed, and replaces the one of its title in NAME.json."""

    def __init__(self, name, command, folder):
        self.path, self.name, self.command = folder / f"{name}.json", name, command

    def keep(self, table):
        table.show()
        commands = list(dict.fromkeys(table.commands)) or self.command
        measured = {"title": table.title, "command": commands, "machine": machine(), "date": time.strftime("%Y-%m-%d")}
        measured |= {"columns": list(table.columns), "rows": [[rounded(cell) for cell in row] for row in table.rows]}
        measured |= {"notes": table.notes} if table.notes else {}
        measured |= {"runs": table.runs} if table.runs else {}
        found = json.loads(self.path.read_text())["measurements"] if self.path.exists() else []
        titles = [each["title"] for each in found]
        at = titles.index(table.title) if table.title in titles else len(found)
        found[at : at + 1] = [measured]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(document(self.name, found))
        say(f"written to {self.path.relative_to(ROOT)}")


def document(name, measurements):
    """JSON with one line for each row, command, note and contender."""

    def dumps(value):
        return json.dumps(value, ensure_ascii=False)

    def field(key, value):
        if not value or isinstance(value, str) or key == "columns":
            return dumps(value)
        items = [f"{dumps(each)}: {dumps(value[each])}" for each in value] if isinstance(value, dict) else map(dumps, value)
        first, last = "{}" if isinstance(value, dict) else "[]"
        return "\n".join([first, ",\n".join(f"    {item}" for item in items), f"   {last}"])

    entries = (",\n".join(f"   {dumps(key)}: {field(key, value)}" for key, value in measured.items()) for measured in measurements)
    body = ",\n".join(f"  {{\n{entry}\n  }}" for entry in entries)
    return f'{{\n "bench": {dumps(name)},\n "measurements": [\n{body}\n ]\n}}\n'


def rounded(cell):
    """`cell` with four significant digits, for JSON."""
    if isinstance(cell, (list, tuple)):
        return [rounded(each) for each in cell]
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


def format_cell(cell):
    if isinstance(cell, (list, tuple)):  # predicted and published
        return " / ".join(map(format_cell, cell))
    if isinstance(cell, float) and abs(cell) < 1000:
        return f"{cell:.3g}"
    return f"{cell:,.0f}" if isinstance(cell, (int, float)) else "" if cell is None else str(cell)


def machine():
    """The processor, the cores that are used, and the memory."""
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    model, flags = next((v.strip() for k, v in info.items() if k.strip() == "model name"), "unknown processor"), info.get("flags\t\t", "")
    vectors = next((name for name, flag in (("AMX", "amx_tile"), ("AVX-512", "avx512f"), ("AVX2", "avx2")) if f" {flag}" in flags), "")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
    return f"{len(os.sched_getaffinity(0))} cores of {model}{f' with {vectors}' if vectors else ''}, {memory:.0f} GiB"


# Environments and inputs.


def environment():
    """The Python of target/bench/env; made again if requirements.txt changed."""
    folder, pins = WORK / "env", BENCH / "requirements.txt"
    python, stamp = folder / "bin" / "python", folder / "made-from"
    key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != key:
        say("making target/bench/env")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*install, "--only-binary", ":all:", "-r", pins], env={**os.environ, "TMPDIR": str(WORK)}, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(f"target/bench/env cannot be made: {error}") from error
        stamp.write_text(key)
    return python


def peer_environments(*names):
    """The Pythons that `make test-peers` has PyG or DGL in; None if it cannot be installed."""
    # In a process of its own: making one takes memory, which would show in the peak of each child.
    make = f"import run; print(*[run.environment(name) for name in {names!r}], sep='\\n')"
    output = run([sys.executable, "-c", make], PYTHONPATH=str(ROOT / "tests" / "peers")).output.splitlines()
    return [None if line == "None" else Path(line) for line in output[-len(names) :]]


def dgl_environment():
    (python,) = peer_environments("dgl")
    if python is None:
        raise BenchError("the environment of DGL could not be made: there is nothing to compare with")
    return python


def dataset(name, *make):
    """The dataset of that name, made where it is missing; None without its input.

    `make` is a command of gsplit, or the words of inputs/edges.py and then "convert" with its options.
    """
    folder = DATA / name
    missing = [word for word in make if isinstance(word, Path) and not word.exists()]
    if missing:
        say(f"{name}: {missing[0]} is not there: left out")
        return None
    if not (folder / "dataset.json").is_file():
        say(f"making {folder.relative_to(ROOT)}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        if make[0] in ("convert", "generate"):
            gsplit(*make, "--out", folder, "--quiet")
        else:
            raw, at = folder.with_name(f"{name}-raw"), make.index("convert")
            run([environment(), INPUTS / "edges.py", raw, *make[:at]])
            gsplit("convert", raw, *make[at + 1 :], "--out", folder, "--quiet")
            shutil.rmtree(raw)
    return folder


def need_disk(folder, num_bytes):
    """Fails if the disk of `folder` has less room."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise BenchError(f"{folder} has {free / 1e9:.1f} GB free, {num_bytes / 1e9:.1f} GB are needed: make room")


def size_of(folder):
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
