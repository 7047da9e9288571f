"""The binary's commands from Python: reports, progress, errors and interrupts."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import REPOSITORY

import gsplit
from gsplit import _commands

TRAIN: dict[str, Any] = {"parallelism": "single", "layers": 2, "fanouts": [5, 5], "hidden": 8, "dropout": 0}


def make_dataset(**options: Any) -> gsplit.Dataset:
    made = gsplit.generate("community", "ds", vertices=600, edges=6000, feature_dim=8, quiet=True, **options)
    return gsplit.open(made["path"])


def test_from_a_raw_graph_to_predictions(commands: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = gsplit.convert(REPOSITORY / "tests/data/ogb-csv", "six", symmetrise=True, keep_ids=False)
    assert made["num_vertices"] == 6 and gsplit.open("six").num_edges == made["num_edges"]
    ds = make_dataset(seed=1)
    assert gsplit.presample(ds, fanouts=[5, 5], epochs=2)["key"] in ds.presamples
    cut = gsplit.partition(ds, parts=2, balance=("vertices", "work"))
    assert sum(cut["part_sizes"]) == 600 and cut["key"] in ds.partitions
    capfd.readouterr()
    trained = gsplit.train(
        ds, **{**TRAIN, "parallelism": "split", "ranks": 2}, epochs=3, lr=np.float32(0.01), checkpoint="run"
    )
    assert [epoch["epoch"] for epoch in trained["summary"]["epochs"]] == [1, 2, 3]
    shown = capfd.readouterr()
    # One line an epoch while it trains; nothing where the user's own output goes.
    assert shown.out == "" and sum(line.split()[:1] in (["1"], ["2"], ["3"]) for line in shown.err.splitlines()) == 3
    scores = gsplit.infer(ds, "run", out=Path("p.npy"), quiet=True)["summary"]["scores"]
    assert [name for name, _ in scores] == ["train", "valid", "test"] and np.load("p.npy").shape == (600,)
    assert capfd.readouterr().err == ""


def test_run_does_all_of_it(commands: Path) -> None:
    ds = make_dataset()
    report = gsplit.run(ds, "out", train={"epochs": 1, **TRAIN})
    assert [step["step"] for step in report["steps"]][-2:] == ["infer", "report"]
    assert Path("out/report.html").is_file()


def test_failures(commands: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(gsplit.CommandError, match="nowhere: No such file") as failed:
        gsplit.train("nowhere", quiet=True)
    assert failed.value.exit == 1 and failed.value.command[1:3] == ["train", "nowhere"]
    assert "\n" not in str(failed.value) and str(failed.value) == failed.value.message
    assert capfd.readouterr().err == ""
    ds = make_dataset()
    with pytest.raises(
        gsplit.CommandError, match=r"unexpected argument '--fanout' found; tip: .*'--fanouts'"
    ) as failed:
        gsplit.train(ds, fanout=[5, 5], quiet=True)
    assert failed.value.exit == 2 and "\n" not in str(failed.value)
    with pytest.raises(gsplit.CommandError, match="invalid value 'many' for '--layers"):
        gsplit.train(ds, layers="many", quiet=True)
    with pytest.raises(gsplit.CommandError) as failed:
        gsplit.train(ds, layers=3, fanouts=[5], quiet=True)
    assert failed.value.exit == 2 and "fanouts" in str(failed.value)


@pytest.mark.parametrize("value", [object(), {"a": 1}, [[1]], [None], [True]])
def test_values_that_no_option_takes(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPLIT", "gsplit")
    with pytest.raises(TypeError, match="option layers: "):
        gsplit.train("ds", layers=value)


def stand_in(folder: Path, body: str) -> str:
    """A program in place of gsplit."""
    path = folder / "gsplit"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time, json\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_options_become_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stand_in(
        tmp_path, 'print(json.dumps({"words": sys.argv[1:], "progress": os.environ["GSPLIT_PROGRESS"]}))'
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GSPLIT", raising=False)
    report = gsplit.partition(
        "-odd", parts=4, import_=Path("a b"), balance=["work", "edges"], report=True, force=False, key=None, epsilon=0.1
    )
    words = ["partition", "./-odd", "--parts=4", "--import=a b", "--balance=work,edges", "--report", "--epsilon=0.1"]
    assert report["words"] == [*words, "--json"] and report["progress"] == "1"
    assert program == str(tmp_path / "gsplit")
    keys = {"decimal": "comma", "one_table": True, "na": ["#N/A", -9], "fill": None}
    report = gsplit.convert("e.csv", "ds", schema=[Path("s.toml"), keys])
    words = ["--schema=s.toml", "--schema=decimal=comma", "--schema=one-table=yes", '--schema=na=["#N/A", "-9"]']
    assert report["words"] == ["convert", "e.csv", "--out=ds", *words, "--json"]
    with pytest.raises(TypeError, match="option fill is a key of the schema: pass schema="):
        gsplit.convert("e.csv", "ds", fill="mean")


def test_a_program_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GSPLIT", raising=False)
    with pytest.raises(gsplit.CommandError, match="gsplit program is not on PATH: `make build`"):
        gsplit.train("ds")
    monkeypatch.setenv("GSPLIT", str(tmp_path / "none"))
    with pytest.raises(gsplit.CommandError, match="none: cannot be started: No such file") as failed:
        gsplit.train("ds")
    assert failed.value.exit is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), 9)", r"gsplit train was ended by signal 9 \(Killed\)"),
        ("sys.exit(3)", "gsplit train ended with exit code 3 and no report"),
        ("print('no json')", "gsplit train ended with exit code 0 and no report"),
        ("print('error: broken\\n\\n  tip: mend it', file=sys.stderr); sys.exit(2)", "^broken; tip: mend it$"),
        ("print(json.dumps({'error': 'told', 'exit': 1})); sys.exit(1)", "^told$"),
    ],
)
def test_ends_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str) -> None:
    monkeypatch.setenv("GSPLIT", stand_in(tmp_path, body))
    with pytest.raises(gsplit.CommandError, match=words):
        gsplit.train("ds")


def test_much_output_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "print('x' * 300000); print('y' * 300000, file=sys.stderr); print(json.dumps({'z': 'z' * 300000}))"
    monkeypatch.setenv("GSPLIT", stand_in(tmp_path, body))
    assert len(gsplit.train("ds")["z"]) == 300000


def test_an_interrupt_ends_the_child_which_keeps_its_checkpoint(commands: Path) -> None:
    make_dataset()
    options = {**TRAIN, "epochs": 100000, "checkpoint": "run"}
    script = f"import gsplit; gsplit.train('ds', **{options!r})"
    # Only Python is signalled, like a notebook's kernel.
    python = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(Path("run").glob("epoch-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    python.send_signal(signal.SIGINT)
    _, told = python.communicate(timeout=60)
    assert "KeyboardInterrupt" in told and "interrupted: " in told, told
    kept = sorted(Path("run").glob("epoch-*"))
    assert kept and not [path for path in commands.iterdir() if path.name.startswith(".")]
    resumed = gsplit.train("ds", **{**options, "epochs": int(kept[-1].name[6:]) + 1}, resume=True, quiet=True)
    assert len(resumed["summary"]["epochs"]) >= 1


def test_any_command_runs(commands: Path) -> None:
    ds = make_dataset()
    assert _commands.run_command("inspect", ds)["dataset"]["num_vertices"] == 600
    assert os.fspath(ds.path) == "ds"


def test_tables_in_memory_are_converted(commands: Path) -> None:
    rng = np.random.default_rng(5)
    edges = np.unique(rng.integers(0, 50, (400, 2)), axis=0).T
    x, y = rng.random((60, 3), dtype=np.float32), rng.integers(0, 3, 60)
    options: dict[str, Any] = {"quiet": True, "keep_ids": True}
    gsplit.convert(edges=edges, nodes={"x": x, "y": y}, out="index", **options)
    ids = {"id": np.arange(60), "x": x, "y": y.tolist()}
    gsplit.convert(edges={"source": edges[0], "target": edges[1]}, nodes=ids, out="dicts", **options)
    gsplit.convert(pa.table({"source": edges[0], "target": edges[1]}), "arrow", nodes=Frame(ids), **options)
    for name in ("index", "dicts", "arrow"):
        ds = gsplit.open(name)
        assert ds.num_vertices == 60 and ds.num_edges == edges.shape[1], name
        np.testing.assert_array_equal(ds.features[:], x)
        np.testing.assert_array_equal(ds.labels, y)
    assert not list(Path(tempfile.gettempdir()).glob("gsplit-*/edges.parquet"))


class Frame:
    """A data frame of another library, such as polars: all that is known of it is its stream of Arrow."""

    def __init__(self, columns: dict[str, Any]) -> None:
        x = pa.FixedSizeListArray.from_arrays(pa.array(columns["x"].ravel()), 3)
        self.table = pa.table({**columns, "x": x})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_tables_in_memory_are_predicted(commands: Path) -> None:
    rng = np.random.default_rng(6)
    y = np.arange(80) % 2
    nodes = {"id": np.arange(80), "age": rng.random(80) + y, "label": y}
    edges = pa.table({"source": rng.integers(0, 80, 400), "target": rng.integers(0, 80, 400)})
    train = {**TRAIN, "epochs": 2}
    gsplit.run(edges, "out", train, nodes=nodes, random_split=[0.6, 0.2, 0.2], quiet=True)
    new = {"id": np.arange(5), "age": rng.random(5)}
    links = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    pairs = {"source": links[0], "target": links[1]}
    gsplit.infer(checkpoint="out/checkpoint/best", nodes=new, edges=pairs, out="new.npy", quiet=True)
    assert len(np.load("new.npy")) == 5


@pytest.mark.parametrize("edges", [np.zeros((3, 4)), {"source": [1], "target": [1, 2]}, {"source": 1}])
def test_tables_that_are_none(edges: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPLIT", "gsplit")
    with pytest.raises(TypeError, match=r"edges: .*; expected a path, a table of pandas, polars or pyarrow, or a dict"):
        gsplit.convert(edges=edges, out="ds")
    for source, out, given in ((None, "ds", None), ("a", "ds", edges), ("a", None, None)):
        with pytest.raises(TypeError, match="takes a raw graph or edges=, and out"):
            gsplit.convert(source, out, edges=given)


def test_the_commands_beside_training(commands: Path) -> None:
    ds = make_dataset()
    gsplit.presample(ds, fanouts=[5, 5], epochs=2, batch_size=64, quiet=True)
    keys = [gsplit.partition(ds, parts=2, partitioner=p, quiet=True)["key"] for p in ("random", "metis")]
    assert gsplit.evaluate(ds, partition=keys[1], batches=5, quiet=True)["batches"] == 5
    assert "metis" in str(gsplit.place(ds, partition=keys[1], cache="20%", quiet=True))
    assert gsplit.plan(ds, profile="cpu-2", layers=2, fanouts=[5, 5], batch_size=64, quiet=True)
    gsplit.export(ds, "metis", "ds.graph", quiet=True)
    assert Path("ds.graph").is_file()
    gsplit.report(ds, "page.html", quiet=True)
    assert Path("page.html").is_file()
