"""`NeighborLoader` against a brute-force look at the graph, and against what the binary counts."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import six_vertices as six
import writer
from conftest import PACKAGE, in_a_fork

import gsplit
from gsplit._epochs import memory_for, on_device

pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
Run = Callable[..., str]
N, DIM = 300, 6


def write(path: Path, **changes: Any) -> gsplit.Dataset:
    """A graph of 300 vertices with degrees from 0 to about 40, every third vertex for training."""
    rng = np.random.default_rng(7)
    edges = sorted(
        {(int(u), int(rng.integers(v + 1))) for v in range(N) for u in rng.integers(N, size=rng.integers(1, 12))}
    )
    indptr, indices = writer.to_csc(edges, N)
    given: dict[str, Any] = {
        "features": rng.standard_normal((N, DIM)).astype(np.float32),
        "labels": rng.integers(-1, 5, N).astype(np.int32),
        "splits": {"train": list(range(0, N, 3)), "valid": [1], "test": [2]},
        **changes,
    }
    return gsplit.open(writer.write_dataset(path, indptr, indices, **given))


@pytest.fixture
def ds(tmp_path: Path) -> gsplit.Dataset:
    return write(tmp_path / "ds")


def loader(
    ds: gsplit.Dataset | Path, fanouts: Any = (4, 3), batch_size: int = 16, **options: Any
) -> gsplit.NeighborLoader:
    return gsplit.NeighborLoader(ds, fanouts, batch_size, **{"numpy": True, **options})


def content(batch: Any) -> list[Any]:
    """Everything of a mini-batch, to be compared."""
    if isinstance(batch, gsplit.MiniBatch):
        blocks = [[b.indptr.tolist(), b.indices.tolist(), b.num_src, b.num_dst] for b in batch.blocks]
        return [blocks, batch.n_id.tolist(), batch.input_id.tolist(), batch.x.tolist(), batch.y.tolist()]
    sizes = [batch.num_sampled_nodes, batch.num_sampled_edges]
    return [sizes, *(array.tolist() for array in (batch.n_id, batch.edge_index, batch.input_id, batch.x, batch.y))]


def contents(of: gsplit.NeighborLoader, epoch: int = 1) -> list[Any]:
    of.set_epoch(epoch)
    return [content(batch) for batch in of]


def targets_of(block: gsplit.Block) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(block.num_dst), np.diff(block.indptr))


def expect_drawn(ds: gsplit.Dataset, vertex: int, sources: npt.NDArray[Any], fanout: int | None) -> None:
    """`sources` are distinct in-neighbours of `vertex`, as many as the fanout, and all where there are no more."""
    neighbours = ds.in_neighbours(vertex)
    kept = len(neighbours) if fanout is None else min(fanout, len(neighbours))
    assert len(sources) == len(np.unique(sources)) == kept, vertex
    assert np.isin(sources, neighbours).all(), vertex


@pytest.mark.parametrize("fanouts", [[4, 3], [2, -1, 1], ["all"], "5,all"])
def test_oracle_every_vertex_of_a_subgraph_is_expanded_once(ds: gsplit.Dataset, fanouts: Any) -> None:
    words = fanouts.split(",") if isinstance(fanouts, str) else fanouts
    limits = [None if str(fanout) in ("all", "-1") else int(fanout) for fanout in words]
    seen: list[int] = []
    for batch in loader(ds, fanouts, edge_ids=True):
        assert isinstance(batch, gsplit.Subgraph)
        assert len(batch.n_id) == len(np.unique(batch.n_id)) == sum(batch.num_sampled_nodes)
        sources, targets = batch.edge_index
        np.testing.assert_array_equal(ds.indices[batch.e_id], batch.n_id[sources])
        at = batch.n_id[targets]
        assert ((ds.indptr[at] <= batch.e_id) & (batch.e_id < ds.indptr[at + 1])).all()
        first = edge = 0
        for limit, frontier, edges in zip(limits, batch.num_sampled_nodes, batch.num_sampled_edges):
            layer = slice(edge, edge + edges)
            for position in range(first, first + frontier):
                drawn = batch.n_id[sources[layer][targets[layer] == position]]
                expect_drawn(ds, int(batch.n_id[position]), drawn, limit)
            reached = first + frontier + batch.num_sampled_nodes[limits.index(limit) + 1]
            assert sources[layer].max(initial=0) < reached
            first, edge = first + frontier, edge + edges
        assert edge == len(sources) and batch.num_sampled_nodes[0] == batch.batch_size
        np.testing.assert_array_equal(batch.x, ds.features[batch.n_id])
        np.testing.assert_array_equal(batch.y, ds.labels[batch.n_id])
        np.testing.assert_array_equal(ds.split("train")[batch.input_id], batch.n_id[: batch.batch_size])
        seen += batch.n_id[: batch.batch_size].tolist()
    assert sorted(seen) == ds.split("train").tolist()


def test_oracle_blocks_expand_all_that_was_reached(ds: gsplit.Dataset) -> None:
    seen: list[int] = []
    for batch in loader(ds, [4, 3], form="blocks", edge_ids=True):
        bottom, top = batch.blocks
        assert top.num_dst == batch.batch_size and top.num_src == bottom.num_dst and bottom.num_src == len(batch.n_id)
        for block, fanout in ((top, 4), (bottom, 3)):
            assert block.indptr.dtype == block.indices.dtype == np.int32
            np.testing.assert_array_equal(ds.indices[block.e_id], batch.n_id[block.indices])
            for position in range(block.num_dst):
                drawn = block.indices[block.indptr[position] : block.indptr[position + 1]]
                expect_drawn(ds, int(batch.n_id[position]), batch.n_id[drawn], fanout)
        np.testing.assert_array_equal(batch.x, ds.features[batch.n_id])
        np.testing.assert_array_equal(batch.y, ds.labels[batch.seeds])
        seen += batch.seeds.tolist()
    assert sorted(seen) == ds.split("train").tolist()


def test_differential_a_subgraph_has_some_of_the_edges_of_the_blocks(ds: gsplit.Dataset) -> None:
    both = zip(loader(ds, [4, 3, 2], edge_ids=True), loader(ds, [4, 3, 2], form="blocks", edge_ids=True))
    for graph, batch in both:
        assert set(graph.n_id.tolist()) <= set(batch.n_id.tolist())
        edge = 0
        for count, block in zip(graph.num_sampled_edges, reversed(batch.blocks)):
            drawn = set(graph.e_id[edge : edge + count].tolist())
            assert drawn <= set(block.e_id.tolist())
            edge += count
        np.testing.assert_array_equal(graph.e_id[: graph.num_sampled_edges[0]], batch.blocks[-1].e_id)


@pytest.mark.parametrize("form", ["pyg", "blocks"])
def test_mini_batches_depend_on_seed_and_epoch_alone(ds: gsplit.Dataset, form: str) -> None:
    first = loader(ds, form=form, seed=3)
    expected = contents(first)
    for threads in (1, 2, 3):
        for prefetch in (0, 1, 4):
            assert contents(loader(ds, form=form, seed=3, threads=threads, prefetch=prefetch)) == expected
    second = [content(batch) for batch in first]
    assert second == contents(loader(ds.path, form=form, seed=3), 2) != expected
    assert contents(first) == expected != contents(loader(ds, form=form, seed=4))


def test_differential_blocks_are_what_presample_counts(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ds"
    run("generate", "community", "--vertices", "3000", "--edges", "40000", "--seed", "1", "--quiet", "--out", path)
    run("presample", path, "--fanouts", "6,4,all", "--epochs", "2", "--batch-size", "100", "--seed", "9", "--quiet")
    ds = gsplit.open(path)
    counted = ds.presample(ds.presamples[0])
    edges, inputs = np.zeros(ds.num_edges, np.uint32), np.zeros(ds.num_vertices, np.uint32)
    batches = loader(ds, "6,4,all", 100, seed=9, form="blocks", edge_ids=True, features=False)
    # Pre-sampling numbers its epochs from here.
    batches.set_epoch(2**31)
    for _ in range(2):
        for batch in batches:
            inputs[batch.n_id] += 1
            for block in batch.blocks:
                np.add.at(edges, block.e_id, 1)
    np.testing.assert_array_equal(edges, counted.edge)
    np.testing.assert_array_equal(inputs, counted.input)


def test_order_and_size_of_mini_batches(ds: gsplit.Dataset) -> None:
    in_order = loader(ds, batch_size=30, shuffle=False)
    assert len(in_order) == 4 and in_order.epoch == 1
    seeds = [batch.n_id[: batch.batch_size] for batch in in_order]
    assert [len(part) for part in seeds] == [30, 30, 30, 10] and in_order.epoch == 2
    np.testing.assert_array_equal(np.concatenate(seeds), ds.split("train"))
    whole = loader(ds, batch_size=30, drop_last=True)
    assert len(whole) == 3 and [batch.batch_size for batch in whole] == [30] * 3
    (all_at_once,) = loader(ds, batch_size=10**6)
    assert all_at_once.batch_size == 100
    given = loader(ds, seeds=[7, 0, 299], shuffle=False)
    (batch,) = given
    assert batch.n_id[:3].tolist() == [7, 0, 299] and batch.input_id.tolist() == [0, 1, 2]
    (of_split,) = loader(ds, seeds="valid")
    assert of_split.n_id[0] == 1 and of_split.batch_size == 1
    assert list(loader(ds, seeds=[])) == [] and "300" not in repr(given) and "3 seeds" in repr(given)


def test_the_names_that_pyg_has(ds: gsplit.Dataset) -> None:
    expected = contents(loader(ds, [4, 3], seeds=[8, 2, 5]))
    mask = np.zeros(N, np.bool_)
    mask[[8, 2, 5]] = True
    options: dict[str, Any] = {
        "num_neighbors": [4, 3],
        "batch_size": 16,
        "numpy": True,
        "num_workers": 0,
        "replace": False,
        "is_sorted": False,
        "time_attr": None,
        "subgraph_type": SimpleNamespace(value="directional"),
    }
    assert contents(gsplit.NeighborLoader(ds, input_nodes=[8, 2, 5], **options)) == expected
    masked = gsplit.NeighborLoader(ds, input_nodes=mask, **options)
    assert masked.seeds.tolist() == [2, 5, 8] and masked.seeds.dtype == np.uint32
    assert len(gsplit.NeighborLoader(ds, input_nodes="all", **options).seeds) == N


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_neighbors": [2]}, "fanouts and num_neighbors are two names of the same"),
        ({"seeds": "train", "input_nodes": "train"}, "seeds and input_nodes are two names of the same"),
        ({"fanouts": None}, "fanouts are missing"),
        ({"fanouts": {("a", "to", "b"): [2]}}, "fanouts by type of edge: the dataset has one type"),
        ({"seeds": ("paper", None)}, "seeds of the type 'paper': vertices have one type here"),
        ({"disjoint": True}, "has no disjoint=True: seeds share"),
        ({"time_attr": "year"}, "has no time_attr='year': vertices and edges have no times"),
        ({"num_workers": 4}, "has no num_workers=4: the loader makes mini-batches ahead itself"),
        ({"weight_attr": "w"}, "draw_by names the edge column"),
        ({"fan_outs": [1]}, r"NeighborLoader\(\) got an unexpected keyword argument 'fan_outs'"),
    ],
)
def test_names_that_are_refused(ds: gsplit.Dataset, options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words) as raised:
        loader(ds, **options)
    assert "\n" not in str(raised.value)
    with pytest.raises(TypeError, match="iterated over, not indexed"):
        loader(ds)[0]


@pytest.mark.parametrize("form", ["pyg", "blocks"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_oracle_ranks_have_equally_many_portions_of_one_loader(ds: gsplit.Dataset, form: str, drop_last: bool) -> None:
    # 100 seeds: the last mini-batch has one that three ranks share.
    whole = list(loader(ds, batch_size=33, form=form, drop_last=drop_last))
    parts = [loader(ds, batch_size=11, form=form, drop_last=drop_last, rank=r, world_size=3) for r in range(3)]
    assert [len(part) for part in parts] == [len(whole)] * 3 and parts[0].batch_size == 11
    for batch, *portions in zip(whole, *parts):
        drawn = np.concatenate([portion.input_id for portion in portions])
        np.testing.assert_array_equal(drawn, np.resize(batch.input_id, max(3, batch.batch_size)))
        if form == "blocks":
            top = [np.diff(portion.blocks[-1].indptr) for portion in portions]
            expected = np.diff(batch.blocks[-1].indptr)
            np.testing.assert_array_equal(np.concatenate(top), np.resize(expected, len(drawn)))
    (two,) = zip(*[loader(ds, seeds=range(8), batch_size=4, rank=r, world_size=3) for r in range(3)])
    assert sorted(portion.batch_size for portion in two) == [2, 3, 3]


def test_a_loader_pickles_and_a_spawned_process_draws_the_same(ds: gsplit.Dataset) -> None:
    batches = loader(ds, seeds=[7, 3, 5], rank=1, world_size=2, batch_size=1)
    batches.set_epoch(4)
    again = pickle.loads(pickle.dumps(batches))  # noqa: S301
    assert again.epoch == 4 and repr(again) == repr(batches)
    expected = contents(batches)
    assert contents(again) == expected
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(contents, (batches,)) == expected


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_pass_that_is_left_leaves_no_thread(ds: gsplit.Dataset) -> None:
    before = threads()
    batches = loader(ds, batch_size=1, prefetch=3, threads=2)
    left = iter(batches)
    next(left)
    assert threads() > before
    del left
    for _ in batches:
        pass
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before


def test_an_interrupt_ends_a_pass(ds: gsplit.Dataset) -> None:
    script = (
        "import sys, gsplit; l = gsplit.NeighborLoader(sys.argv[1], [4, 3], 4, numpy=True);"
        "print('begun', flush=True)\nwhile True:\n    for batch in l: pass"
    )
    python = subprocess.Popen([sys.executable, "-c", script, ds.path], stdout=-1, stderr=-1, text=True)
    assert python.stdout is not None and python.stdout.readline() == "begun\n"
    time.sleep(0.2)
    python.send_signal(signal.SIGINT)
    _, told = python.communicate(timeout=20)
    assert told.endswith("KeyboardInterrupt\n") and "panicked" not in told


def test_mini_batches_go_to_a_gpu_each_when_it_is_asked_for() -> None:
    """No GPU here: the calls are followed. Memory is free once its rows are copied, also where a pass is left early."""
    told: list[str] = []

    class Batch:
        def __init__(self, number: int) -> None:
            self.number = number

        def pin_memory(self) -> Batch:
            return self

        def to(self, device: Any, non_blocking: bool) -> Batch:
            assert non_blocking and told[-1] == "on side"
            told.append(f"copy {self.number}")
            return self

        def record_stream(self, stream: Any) -> None:
            told.append(f"keep {self.number}")

    def record_event() -> Any:
        copy = told[-1]
        return SimpleNamespace(name=copy, synchronize=lambda: told.append(f"host waits for {copy}"))

    side = SimpleNamespace(record_event=record_event)
    present = SimpleNamespace(wait_event=lambda event: told.append(f"GPU waits for {event.name}"))
    cuda = SimpleNamespace(
        Stream=lambda device: side,
        stream=lambda stream: told.append("on side") or nullcontext(),  # type: ignore[func-returns-value]
        current_stream=lambda device: present,
    )
    torch, device = SimpleNamespace(cuda=cuda), SimpleNamespace(type="cuda")

    def of(k: int) -> list[str]:
        return ["on side", f"copy {k}", f"GPU waits for copy {k}", f"keep {k}", f"use {k}", f"host waits for copy {k}"]

    for batch in on_device(torch, map(Batch, range(2)), device):
        told.append(f"use {batch.number}")
    assert told == of(0) + of(1)
    told.clear()
    for batch in on_device(torch, map(Batch, range(2)), device):
        told.append(f"use {batch.number}")
        break
    assert told == of(0)


@pytest.mark.parametrize(("dtype", "prefetch"), [("f32", 2), ("bf16", 0)])
def test_rows_are_gathered_into_memory_that_python_allocates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, prefetch: int
) -> None:
    ds = write(tmp_path / "ds", dtype=dtype)
    allocated: list[Any] = []

    def allocate(count: int) -> Any:
        allocated.append(np.full(count, np.nan, np.float32))
        return allocated[-1]

    expected = loader(ds)
    monkeypatch.setattr("gsplit._epochs.memory_for", lambda *_: {"allocate": allocate})
    given = loader(ds, prefetch=prefetch)
    placed: list[bool] = []
    for _ in range(20):
        for batch, same in zip(given, expected):
            np.testing.assert_array_equal(batch.x, same.x)
            placed.append(any(np.shares_memory(batch.x, array) for array in allocated))
    # One array for each mini-batch that found none large enough.
    assert 0 < placed.count(False) == len(allocated) < len(placed) / 4
    # Memory of a mini-batch that is still held is not reused.
    assert given.epoch == expected.epoch
    for batch, same in zip(list(given), expected):
        np.testing.assert_array_equal(batch.x, same.x)


def test_pinned_memory_that_is_not_there_is_one_line() -> None:
    def empty(count: int, **_: Any) -> None:
        raise RuntimeError("out of memory")

    cuda = SimpleNamespace(type="cuda")
    told = r"^the rows of a mini-batch need 400 bytes of pinned memory: pass a smaller batch_size or prefetch \(out of"
    with pytest.raises(MemoryError, match=told):
        memory_for(SimpleNamespace(empty=empty, float32=None), cuda)["allocate"](100)


def test_a_pass_can_be_left_early(ds: gsplit.Dataset) -> None:
    batches = loader(ds, batch_size=1, prefetch=3)
    for _ in range(20):
        for batch in batches:
            assert batch.batch_size == 1
            break
    assert batches.epoch == 21 and len(list(batches)) == 100


@pytest.mark.parametrize("dim", [DIM, 5])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8"])
def test_features_of_every_type(tmp_path: Path, dtype: str, dim: int) -> None:
    features = np.random.default_rng(1).standard_normal((N, dim)).astype(np.float32)
    ds = write(tmp_path / "ds", dtype=dtype, features=features)
    (stored,), (wide,) = loader(ds, batch_size=N), loader(ds, batch_size=N, dtype="float32", load_features=True)
    expected = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.float32}
    assert stored.x.dtype == expected[dtype] and wide.x.dtype == np.float32
    np.testing.assert_array_equal(wide.x, ds.features[wide.n_id])
    if dtype == "i8":
        np.testing.assert_array_equal(stored.x, wide.x)
    else:
        np.testing.assert_array_equal(stored.x, ds.features.array()[stored.n_id])
    for kept in ("stored", "float32"):
        (mapped,), (read,) = (
            loader(ds, batch_size=N, dtype=kept, load_features=way, threads=2) for way in (False, "disk")
        )
        assert read.x.dtype == mapped.x.dtype
        np.testing.assert_array_equal(read.x, mapped.x)


def test_what_is_left_out(tmp_path: Path) -> None:
    bare = write(tmp_path / "bare", features=None, labels=None)
    (batch,) = loader(bare, batch_size=N)
    assert batch.x is None and batch.y is None and batch.e_id is None
    (batch,) = loader(write(tmp_path / "ds"), batch_size=N, features=False, labels=False, form="blocks")
    assert batch.x is None and batch.y is None and batch.blocks[0].e_id is None


def test_several_labels(tmp_path: Path) -> None:
    ds = write(tmp_path / "ds", labels=np.arange(N * 11).reshape(N, 11) % 3 == 0)
    (graph,), (blocks,) = loader(ds, batch_size=N), loader(ds, batch_size=N, form="blocks")
    assert graph.y.dtype == np.float32
    np.testing.assert_array_equal(graph.y, ds.labels[graph.n_id].astype(np.float32))
    np.testing.assert_array_equal(blocks.y, ds.labels[blocks.seeds].astype(np.float32))
    known = np.arange(N * 11).reshape(N, 11) % 5 > 0
    lacking = write(tmp_path / "lacking", labels=np.asarray(ds.labels) & known, known=known)
    (graph,) = loader(lacking, batch_size=N)
    expected = np.where(known, np.asarray(ds.labels), np.nan)
    np.testing.assert_array_equal(graph.y, expected[graph.n_id])


def test_edges_drawn_by_weight(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain")
    weights = (np.arange(plain.num_edges) % 3).astype(np.float32)
    ds = write(tmp_path / "ds", edge_columns={"weight": weights})
    for batch in loader(ds, [3, 3], draw_by="weight", edge_ids=True):
        assert (weights[batch.e_id] > 0).all()
    with pytest.raises(ValueError, match=r"^draw_by 'time', expected 'weight'$"):
        loader(ds, draw_by="time")
    with pytest.raises(ValueError, match=r"^draw_by 'weight', the dataset has no column of one number an edge$"):
        loader(plain, draw_by="weight")
    pairs = np.zeros((plain.num_edges, 2), np.float32)
    several = write(tmp_path / "several", edge_columns={"pair": pairs, "kind": weights, "weight": weights})
    told = r"^draw_by 'pair', expected 'kind' or 'weight' \(pair: several numbers an edge\)$"
    with pytest.raises(ValueError, match=told):
        loader(several, draw_by="pair")


def test_arrays_are_the_memory_that_was_filled(ds: gsplit.Dataset) -> None:
    (batch,) = loader(ds, batch_size=N)
    for array in (batch.n_id, batch.edge_index, batch.input_id, batch.x, batch.y):
        assert array.flags.writeable and array.flags.c_contiguous and not array.flags.owndata
        array += 1
    assert not np.shares_memory(batch.x, ds.features.array())


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_memory_is_used_again_only_when_nothing_shows_it(tmp_path: Path, prefetch: int, dtype: str) -> None:
    ds = write(tmp_path / "ds", dtype=dtype)
    batches = loader(ds, batch_size=4, prefetch=prefetch)
    kept, addresses = [], set()
    for _ in range(3):
        for step, batch in enumerate(batches):
            addresses.add(batch.x.ctypes.data)
            if step % 5 == 0:
                kept.append((batch.n_id[1:3].copy(), batch.x[1:3]))
            del batch
    assert len(addresses) < 75 - len(kept)
    for vertices, rows in kept:
        np.testing.assert_array_equal(rows, ds.features[vertices].astype(rows.dtype))
    del batches
    np.testing.assert_array_equal(kept[0][1], ds.features[kept[0][0]].astype(kept[0][1].dtype))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fanouts": [0]}, "0"),
        ({"fanouts": "4;3"}, "4;3"),
        ({"fanouts": []}, "fanout"),
        ({"batch_size": 0}, "batch_size 0, expected at least 1"),
        ({"prefetch": -1}, "prefetch -1, expected at least 0"),
        ({"threads": 0}, "threads 0, expected at least 1"),
        ({"seed": -1}, "seed -1, expected one from 0"),
        ({"form": "dgl"}, "form 'dgl', expected pyg or blocks"),
        ({"dtype": "f16"}, "dtype 'f16', expected stored or float32"),
        ({"load_features": "ssd"}, "load_features 'ssd', expected False, True or 'disk'"),
        ({"seeds": [0, 300]}, "seed 300, expected vertices from 0 to 299"),
        ({"seeds": [-1, 3]}, "seed -1, expected vertices from 0 to 299"),
        ({"seeds": [5, 1, 5]}, "vertex 5 is there 2 times, expected distinct seeds"),
        ({"seeds": [0.5]}, "expected a list of vertices"),
        ({"seeds": [True, False]}, r"mask of shape \(2,\), expected one value for each of 300 vertices"),
        ({"rank": 1}, "rank and world_size are given together"),
        ({"rank": 2, "world_size": 2}, "rank 2 of world_size 2, expected one from 0 to 1"),
        ({"device": "cpu"}, "device cpu: NumPy arrays stay in host memory"),
    ],
)
def test_wrong_arguments(ds: gsplit.Dataset, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        loader(ds, **options)
    assert "\n" not in str(raised.value)


def test_a_split_that_is_not_there_and_epochs(ds: gsplit.Dataset) -> None:
    with pytest.raises(gsplit.DatasetError, match="has no trian split"):
        loader(ds, seeds="trian")
    for epoch in (-1, 2**32):
        with pytest.raises(ValueError, match="epoch"):
            loader(ds).set_epoch(epoch)


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    indices = six.INDICES.copy()
    indices[4] = 77
    path = writer.write_dataset(tmp_path / "ds", six.INDPTR, indices, splits=six.SPLITS)
    with pytest.raises(gsplit.DatasetError, match="do not ascend or are not below 6"):
        loader(gsplit.open(path))


@pytest.mark.parametrize("load_features", [False, "disk"])
def test_a_forked_process_can_draw(ds: gsplit.Dataset, load_features: Any) -> None:
    batches = loader(ds, load_features=load_features)
    expected = contents(batches)
    assert in_a_fork(lambda: contents(batches) == expected)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_pass_does_not_go_on_in_a_forked_process(ds: gsplit.Dataset) -> None:
    batches = iter(loader(ds))
    next(batches)

    def is_refused() -> bool:
        with pytest.raises(RuntimeError, match="began before the fork"):
            next(batches)
        return True

    assert in_a_fork(is_refused)
    assert len(list(batches)) == 6


def test_without_the_extension_all_else_works(ds: gsplit.Dataset) -> None:
    script = "import sys, gsplit; print(gsplit.open(sys.argv[1]).num_nodes); gsplit.NeighborLoader(sys.argv[1], [2])"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, ds.path], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout == "300\n"
    assert "ImportError: mini-batches need the extension gsplit._native: `pip install ./python`" in done.stderr
