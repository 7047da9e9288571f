"""Runs the gsplit binary: options as keywords, progress as it comes, reports as data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Union

from . import _hetero, _partition, _tables
from ._dataset import Dataset
from ._errors import CommandError

Report = dict[str, Any]
"""Report of a command: the object that it prints with `--json`."""

_Path = Union[str, "os.PathLike[str]"]
_Input = Union[_Path, Dataset]
# Includes the tables that `_tables` accepts.
_Source = Any

# Options that may be tables in memory.
_TABLES = ("edges", "nodes")

# Commands that read raw graphs, and keys of their schema that are not options.
_READERS = ("convert", "run", "infer")
_KEYS = {
    *("header", "delimiter", "decimal", "date_order", "id_type", "ignore_header", "one_table", "split_name"),
    *("edge_weights", "vertex_weights", "label_kind", "unlabelled", "encode", "fill", "na", "case", "scale"),
    *("unseen", "on_duplicate", "missing_rows"),
}

# Lines of standard error kept for an error message: the message for a wrong option is short.
_KEPT_LINES = 20


def convert(source: _Source | None = None, out: _Path | None = None, **options: Any) -> Report:
    """`gsplit convert`: turns the raw graph `source` (or `edges=`) into the dataset directory `out`.

    Keywords are the command's options, as `symmetrise=True`, `random_split=[0.6, 0.2, 0.2]` or `memory="8GiB"`.
    `schema` says what columns mean and how cells are written: a dict, as `{"decimal": "comma", "fill": "mean"}`, the
    path of a file that `gsplit schema` printed, or a list of these.

    `edges` and `nodes` are paths or tables: of pandas, polars or pyarrow, or dicts of arrays, where a matrix
    `[rows, width]` is one column. `edges` may also be an `edge_index`, `[2, m]`: row v of a dict of `nodes` without
    `id` is then vertex v. Tables are written as Parquet into a temporary folder (`TMPDIR`), and removed at the end.

    `source` may be a `Data` or `HeteroData` of PyG, or a graph of DGL: `x`, `y` (`feat`, `label`), the masks and
    further tensors of each type, and the edges of each relation. It is written into a temporary folder as well.
    """
    edges = options.pop("edges", None)
    if (source is None) == (edges is None) or out is None:
        raise TypeError("convert takes a raw graph or edges=, and out")
    with tempfile.TemporaryDirectory(prefix="gsplit-") as folder:
        written = _hetero.write_graph(source, Path(folder))
        return run_command("convert", written or (edges if source is None else source), out=out, **options)


def generate(kind: str, out: _Path, **options: Any) -> Report:
    """`gsplit generate`: makes a graph of `kind` `community` or `rmat`, as `vertices=1000, edges=8000`."""
    return run_command("generate", kind, out=out, **options)


def presample(dataset: _Input, **options: Any) -> Report:
    """`gsplit presample`: counts what training will touch, as `fanouts=[15, 10, 5], batch_size=1024, epochs=10`."""
    return run_command("presample", dataset, **options)


def partition(graph: Any, parts: int | None = None, **options: Any) -> Any:
    """`gsplit partition`: cuts the graph of a dataset into parts, e.g. `parts=4, weights="degree"`.

    `graph` may also be an `edge_index`, integers `[2, m]` of NumPy or PyTorch: then an int64 array with the part of
    each vertex is returned, and nothing is written. The options are `num_vertices` (default: one more than the largest
    vertex), `epsilon=0.03`, `seed=0`, `quality="default"` and `threads`. Edges count in both directions.
    """
    if isinstance(graph, (str, os.PathLike, Dataset)):
        if parts is not None:
            options = {"parts": parts, **options}
        return run_command("partition", graph, **options)
    if parts is None:
        raise TypeError("partition of an edge_index takes the number of parts")
    return _partition.cut(graph, parts, **options)


def train(dataset: _Input, **options: Any) -> Report:
    """`gsplit train`: trains a model, as `layers=3, fanouts=[15, 10, 5], epochs=10, checkpoint="run"`.

    `report["summary"]["epochs"]` has the losses, scores and times of every epoch.
    """
    return run_command("train", dataset, **options)


def plan(dataset: _Input, **options: Any) -> Report:
    """`gsplit plan`: tells which system is fastest, as `profile="a100-4", fanouts=[15, 10, 5]`."""
    return run_command("plan", dataset, **options)


def evaluate(dataset: _Input, **options: Any) -> Report:
    """`gsplit evaluate`: measures partitions on fresh mini-batches, as `partition="metis-4", batches=100`."""
    return run_command("evaluate", dataset, **options)


def clean(dataset: _Input, **options: Any) -> Report:
    """`gsplit clean`: empties the cache of what `plan` and `compare` made to answer."""
    return run_command("clean", dataset, **options)


def place(dataset: _Input, **options: Any) -> Report:
    """`gsplit place`: decides which feature rows each device caches, as `cache="20%"`."""
    return run_command("place", dataset, **options)


def export(dataset: _Input, format: str, out: _Path, **options: Any) -> Report:
    """`gsplit export`: writes the dataset as another tool has it, `format` being `pyg`, `parquet`, `metis` ..."""
    return run_command("export", dataset, format=format, out=out, **options)


def report(source: _Input, out: _Path = "report.html", **options: Any) -> Report:
    """`gsplit report`: shows a dataset and its runs, or a run's folder, on one HTML page."""
    return run_command("report", source, out=out, **options)


def infer(dataset: _Input | None = None, checkpoint: _Path | None = None, **options: Any) -> Report:
    """`gsplit infer`: predicts for every vertex with a trained model, as `out="predictions.npy"`.

    In place of `dataset`, `nodes` and `edges` are new ones: paths or tables, as for `convert`.
    """
    return run_command("infer", *([] if dataset is None else [dataset]), checkpoint=checkpoint, **options)


def run(source: _Source, out: _Path, train: dict[str, Any] | None = None, **options: Any) -> Report:
    """`gsplit run`: from a raw graph, or a dataset, to a trained model, predictions and a page in the folder `out`.

    `train` has the options of `train`, as `{"epochs": 10}`; the others are those of `convert`. `source` and `nodes` are
    paths or tables, as for `convert`.
    """
    return run_command("run", source, behind=_options(train or {}), out=out, **options)


def run_command(name: str, *words: _Source, behind: Sequence[str] = (), **options: Any) -> Report:
    """Runs `gsplit NAME WORDS... --OPTIONS... --json -- BEHIND...` and returns its report.

    `layers=3` becomes `--layers=3`, `symmetrise=True` becomes `--symmetrise`, a list or tuple is joined with commas,
    and `None` and `False` are left out. A name that is a Python keyword takes an underscore: `import_="parts.txt"`.
    Progress goes to `sys.stderr` line by line, in a notebook below the cell; `quiet=True` shows none.

    Raises `CommandError` when the command fails. Ctrl-C, or a notebook's interrupt, ends it as Ctrl-C does in a shell:
    it first saves or removes what it has begun.
    """
    for key in sorted(_KEYS & options.keys() if name in _READERS else []):
        remedy = f'schema={{"{key.replace("_", "-")}": {options[key]!r:.80}}}'
        raise TypeError(f"option {key} is a key of the schema: pass {remedy}")
    given = {option: options[option] for option in _TABLES if _tables.is_table(options.get(option))}
    source = next((word for word in words if _tables.is_table(word)), None)
    if source is not None:
        given["edges"] = source
    with tempfile.TemporaryDirectory(prefix="gsplit-") if given else nullcontext("") as folder:
        files = _tables.write(given, Path(folder)) if given else {}
        paths = [_word(files["edges"] if word is source else word) for word in words]
        told = {option: files.get(option, value) for option, value in options.items()}
        return _run([name, *paths, *_options(told)], behind, show=not options.get("quiet"))


def _run(words: list[str], behind: Sequence[str], show: bool) -> Report:
    arguments = [_program(), *words]
    # It ends when this process does, even if that is killed.
    environment = {**os.environ, "GSPLIT_PROGRESS": "1", "GSPLIT_PARENT": str(os.getpid())}
    piped, tail = subprocess.PIPE, ["--", *behind] if behind else []
    try:
        child = subprocess.Popen(  # noqa: S603
            [*arguments, "--json", *tail], stdin=subprocess.DEVNULL, stdout=piped, stderr=piped, env=environment
        )
    except OSError as error:
        raise CommandError(arguments, None, f"{arguments[0]}: cannot be started: {error.strerror}") from error
    with child:
        output, told = _watch(child, show)
    last = _last_object(output)
    if child.returncode == 0 and last is not None and "error" not in last:
        return last
    raise CommandError(arguments, child.returncode, _complaint(words[0], child.returncode, last, told))


def _watch(child: subprocess.Popen[bytes], show: bool) -> tuple[bytes, deque[str]]:
    """Waits for `child`; shows its standard error. Returns its standard output and the last lines of the other."""
    assert child.stdout is not None and child.stderr is not None  # noqa: S101
    output, told, stdout = bytearray(), deque[str](maxlen=_KEPT_LINES), child.stdout
    # Standard output is read aside, or the child could wait for room there while this waits for its standard error.
    reader = threading.Thread(target=lambda: output.extend(stdout.read()), daemon=True)
    reader.start()
    interrupted = False
    while True:
        try:
            for line in child.stderr:
                told.append(line.decode(errors="replace"))
                if show:
                    sys.stderr.write(told[-1])
                    sys.stderr.flush()
            child.wait()
            break
        except KeyboardInterrupt:
            # In a terminal it has the signal already, and another does no harm; a notebook signals only Python.
            child.send_signal(signal.SIGTERM if interrupted else signal.SIGINT)
            interrupted = True
    reader.join()
    if interrupted:
        raise KeyboardInterrupt
    return bytes(output), told


def _program() -> str:
    given = os.environ.get("GSPLIT")
    found = given or shutil.which("gsplit") or _installed()
    if found is None:
        remedy = "`make build` or `make wheel` makes it; name its path in GSPLIT, or add its folder to PATH"
        raise CommandError(["gsplit"], None, f"the gsplit program is not on PATH: {remedy}")
    return found


def _installed() -> str | None:
    """The program that came with this package: its folder is not on PATH where the environment is not activated."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        held = files("gsplit") or []
    except PackageNotFoundError:
        return None
    programs = (Path(file.locate()) for file in held if file.name == "gsplit" and file.parent.name == "bin")
    return next((str(program.resolve()) for program in programs if program.is_file()), None)


def _word(value: _Input) -> str:
    """A positional argument; one that begins with a dash is a path here, not an option."""
    text = os.fspath(value.path if isinstance(value, Dataset) else value)
    return f"./{text}" if text.startswith("-") else text


def _options(given: dict[str, Any]) -> list[str]:
    return [word for option, value in given.items() for word in _option(option, value)]


def _option(name: str, value: object) -> list[str]:
    if name == "schema" and value is not None:
        parts: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        return [f"--schema={word}" for part in parts for word in _schema(part)]
    flag = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    items = value if isinstance(value, (list, tuple)) else [value]
    return [f"{flag}={','.join(_value(name, item) for item in items)}"]


def _schema(part: _Path | dict[str, Any]) -> list[str]:
    """The values of `--schema` for a file, or for keys."""
    if not isinstance(part, dict):
        return [_value("schema", part)]

    def text(key: str, value: object) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (list, tuple)):
            # An array of JSON is one of TOML.
            return json.dumps([text(key, item) for item in value], ensure_ascii=False)
        return _value(key, value)

    return [f"{key.replace('_', '-')}={text(key, value)}" for key, value in part.items() if value is not None]


def _value(name: str, item: object) -> str:
    if isinstance(item, (str, Path)):
        return str(item)
    # NumPy's numbers are taken as Python's.
    number = getattr(item, "item", None)
    item = number() if callable(number) else item
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise TypeError(f"option {name}: {item!r:.80}, expected a number, a string, a path, True, or a list of these")
    return str(item)


def _last_object(output: bytes) -> Report | None:
    lines = output.splitlines()
    try:
        last = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return last if isinstance(last, dict) else None


def _complaint(name: str, code: int, report: Report | None, told: deque[str]) -> str:
    """One line: the command's error message, or else how it ended."""
    if report is not None and isinstance(report.get("error"), str):
        return str(report["error"])
    lines = [line.strip() for line in told if line.strip()]
    errors = [line for line in lines if line.startswith(("error: ", "interrupted: "))]
    tips = [line for line in lines if line.startswith("tip: ")]
    if errors:
        return "; ".join([errors[-1].removeprefix("error: "), *tips[:1]])
    if code < 0:
        return f"gsplit {name} was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"gsplit {name} ended with exit code {code} and no report"
