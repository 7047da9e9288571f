"""`gsplit.torch`: a model of one's own on one rank and on several, which are processes. Skipped without torch."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PACKAGE, REPOSITORY, in_a_fork

import gsplit

pytest.importorskip("torch")
pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
pytestmark = pytest.mark.filterwarnings("default")
TIMEOUT = 120


@pytest.fixture(scope="module")
def data(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with kinds of edges, and partitions: even ones, and one whose last parts have almost nothing.

    Others for links: of users and items (taste), of one edge (few), with a split of links of its own (own).
    """
    folder = tmp_path_factory.mktemp("torch")

    def run(*words: str) -> None:
        subprocess.run([binary, *words], cwd=folder, check=True, capture_output=True)

    rng = np.random.default_rng(3)
    edges = rng.integers(0, 700, (6000, 2))
    rows = [f"{u},{v},{(u + 2 * v) % 3}" for u, v in sorted({(int(u), int(v)) for u, v in edges if u != v})]
    (folder / "edges.csv").write_text("source,target,kind\n" + "\n".join(rows) + "\n")
    nodes = [f"{v},{','.join(f'{x:.4f}' for x in rng.standard_normal(6))},{v % 5}" for v in range(700)]
    (folder / "nodes.csv").write_text("id,a,b,c,d,e,f,group\n" + "\n".join(nodes) + "\n")
    options = ["--nodes", "nodes.csv", "--label-column", "group", "--directed", "--random-split", "0.5,0.2,0.3"]
    run("convert", "edges.csv", *options, "--edge-columns", "kind", "--out", "ds")
    run("presample", "ds", "--fanouts", "3,2", "--key", "hot")
    for parts in ("2", "3", "4"):
        run("partition", "ds", "--parts", parts, "--partitioner", "random", "--key", f"even-{parts}")
    uneven = "\n".join("2" if v == 5 else "1" if v < 40 else "0" for v in range(700))
    (folder / "uneven.txt").write_text(uneven + "\n")
    run("partition", "ds", "--import", "uneven.txt", "--parts", "3", "--key", "uneven-3")
    ratings = sorted({(int(u), int(v)) for u, v in rng.integers(0, (120, 60), (2000, 2))})
    (folder / "ratings.csv").write_text("user,item\n" + "\n".join(f"{u},{v}" for u, v in ratings) + "\n")
    run("convert", "ratings.csv", "--bipartite", "--symmetrise", "--features", "fastrp:8", "--out", "taste")
    run("partition", "taste", "--parts", "2", "--partitioner", "random", "--key", "even-2")
    (folder / "few.csv").write_text("source,target\n0,1\n")
    run("convert", "few.csv", "--out", "few")
    shutil.copytree(
        REPOSITORY / "tests/data/ogb-csv", folder / "raw", ignore=lambda _, names: {"split"}.intersection(names)
    )
    shutil.copytree(REPOSITORY / "tests/data/ogb-links/zip", folder / "raw/split/time")
    run("convert", "raw", "--out", "own")
    return folder


def start(folder: Path, ranks: int, task: str, ds: str = "ds", **options: Any) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [sys.executable, str(PACKAGE / "tests" / "torch_ranks.py"), ds, task, json.dumps(options)]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "PYTHONDONTWRITEBYTECODE": "1"}
    place["DGLBACKEND"] = "pytorch"

    def one(rank: int) -> subprocess.Popen[str]:
        environment = {**os.environ, **place, "RANK": str(rank)}
        return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)

    return [one(rank) for rank in range(ranks)]


def said_by(processes: list[subprocess.Popen[str]]) -> list[str]:
    """The outputs of the processes once they have ended, in time."""
    try:
        return [process.communicate(timeout=TIMEOUT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run(folder: Path, ranks: int, task: str, ds: str = "ds", **options: Any) -> list[dict[str, Any]]:
    """What each rank found."""
    processes = start(folder, ranks, task, ds, **options)
    for process, said in zip(processes, said_by(processes)):
        assert process.returncode == 0, said
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(ranks)]


def partition(ranks: int) -> str | None:
    return None if ranks == 1 else f"even-{ranks}"


@pytest.fixture(scope="module")
def single(data: Path) -> dict[str, Any]:
    return run(data, 1, "mean")[0]


@pytest.mark.parametrize(
    ("ranks", "parallelism"), [(2, "split"), (3, "split"), (4, "split"), (2, "owned"), (3, "data")]
)
def test_differential_ranks_learn_as_one_does(data: Path, single: dict[str, Any], ranks: int, parallelism: str) -> None:
    found = run(data, ranks, "mean", parallelism=parallelism, partition=partition(ranks))[0]
    np.testing.assert_allclose(found["losses"], single["losses"], rtol=1e-5)
    np.testing.assert_allclose(found["gradients"], single["gradients"], rtol=1e-4, atol=1e-7)
    for (edges, loaded, exchanged), (single_edges, single_loaded, _) in zip(found["counts"], single["counts"]):
        if parallelism == "split":
            assert (edges, loaded) == (single_edges, single_loaded) and exchanged > 0
        else:
            assert edges > single_edges and loaded > single_loaded and exchanged == 0


def test_ranks_without_seeds_take_part(data: Path, single: dict[str, Any]) -> None:
    found = run(data, 3, "mean", partition="uneven-3")
    np.testing.assert_allclose(found[0]["losses"], single["losses"], rtol=1e-5)
    assert found[2]["without_seeds"] > 0
    assert {rank["mini_batches"] for rank in found} == {single["mini_batches"]}


def test_gradients_that_some_ranks_have_are_sums_and_those_of_none_stay_away(data: Path) -> None:
    # 1 + 2, and the same of both ranks once more with the others.
    sums = [[[6.0] * 3] * 2, [[1.0] * 3] * 2, None]
    assert run(data, 2, "gradients") == [{"looks": 0, "sums": sums, "left": 0}] * 2


@pytest.mark.parametrize("model", ["relations", "sage", "gat", "dgl"])
def test_differential_models_learn_alike(data: Path, model: str) -> None:
    needed = {"sage": "torch_geometric", "gat": "torch_geometric", "dgl": "dgl"}.get(model)
    if needed:
        pytest.importorskip(needed)
    one, two = (run(data, ranks, model, partition=partition(ranks))[0] for ranks in (1, 2))
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2])
def test_oracle_layers_read_the_rows_of_their_sources(data: Path, ranks: int) -> None:
    assert run(data, ranks, "rows") == [{"wrong": 0}] * ranks


@pytest.mark.parametrize(("ranks", "without"), [(1, 0.0), (4, 0.0), (2, 0.3)])
def test_oracle_inference_is_the_model_over_the_whole_graph(data: Path, ranks: int, without: float) -> None:
    found = run(data, ranks, "infer", without=without)
    assert sorted(v for rank in found for v in rank["vertices"]) == list(range(700))
    assert max(rank["off"] for rank in found) < 1e-5


@pytest.fixture(scope="module")
def mag(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of ogbn-mag's shape: four types of vertices, seven relations, and features of papers."""
    folder = tmp_path_factory.mktemp("mag")
    shape = ["--shape", "ogbn-mag", "--scale", "0.0005"]
    split = ["--partitioner", "random", "--parts"]
    for words in (
        ["generate", "typed", *shape, "--out", "ds"],
        *(["partition", "ds", *split, parts, "--key", f"even-{parts}"] for parts in ("2", "4")),
    ):
        subprocess.run([binary, *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("ranks", "parallelism"), [(1, "split"), (2, "split"), (4, "split"), (2, "owned")])
def test_oracle_types_of_vertices_on_ranks_are_the_whole_graph(mag: Path, ranks: int, parallelism: str) -> None:
    """Losses and gradients over all edges, of PyG's HeteroConv and of the same in plain torch."""
    found = run(mag, ranks, "typed", parallelism=parallelism)
    assert max(rank["off"] for rank in found) < 1e-5
    assert found[0]["seen"] == 2 * len(gsplit.open(mag / "ds").split("train"))
    assert all((rank["exchanged"] > 0) == (parallelism == "split" and ranks > 1) for rank in found)


FANOUTS: dict[Any, Any] = {"cites": [3, "all"], ("author", "writes", "paper"): [0, 2], None: [4, 3]}


def test_differential_a_typed_model_in_pytorch_learns_as_the_trainer_does(mag: Path, binary: Path) -> None:
    """The loss of an epoch, its counts and the parameters after it, with fanouts by relation."""
    fanouts = "4+cites=3+author/writes/paper=0,3+cites=all+author/writes/paper=2"
    model = f"--model rsage --layers 2 --fanouts {fanouts} --hidden 8 --batch-size 64 --epochs 2 --dropout 0"
    optimizer = "--optimizer sgd --lr 0.05 --momentum 0 --checkpoint run --threads 2 --json"
    ranks = "--parallelism split --partition even-2 --ranks 2"
    words = ["train", "ds", *model.split(), *optimizer.split(), *ranks.split()]
    said = subprocess.run([binary, *words], cwd=mag, capture_output=True, text=True, check=True).stdout
    expected = json.loads(said)["summary"]["epochs"][1]
    for size in (1, 2):
        found = run(mag, size, "typed_go_on", run="run", fanouts=[*FANOUTS.items()])[0]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5) and found["off"] < 1e-5
        assert found["counts"][0] == expected["edges"] and found["counts"][1] == expected["rows_loaded"]
    assert found["counts"][2] == expected["rows_exchanged"]


def test_oracle_relations_have_fanouts_of_their_own(mag: Path) -> None:
    from gsplit.torch import SplitLoader

    ds = gsplit.open(mag / "ds")
    known = {relation: set(map(tuple, ds.relation_edges(relation).T.tolist())) for relation in ds.relations}
    loader = SplitLoader(ds, FANOUTS, 50, seeds=("author", range(0, 500, 3)))
    assert loader.target == "author" and "fanouts 4+cites=3" in repr(loader)
    drawn = dict.fromkeys(ds.relations, 0)
    for batch in loader:
        # No labels but of papers.
        assert batch.y["author"].max() == -1
        for depth, layer in enumerate(reversed(batch.layers)):
            for relation, (sources, targets) in layer.edge_index.items():
                source, target = layer.src[relation[0]], layer.dst[relation[2]]
                edges = list(zip(source[sources].tolist(), target[targets].tolist()))
                assert len(set(edges)) == len(edges) and known[relation].issuperset(edges)
                fanout = FANOUTS.get(relation, FANOUTS.get(relation[1], FANOUTS[None]))[depth]
                most = np.inf if fanout == "all" else fanout
                degrees = np.bincount([v for _, v in known[relation]], minlength=ds.types[relation[2]].count)
                expected = np.minimum(degrees[target.numpy()], most).astype(int)
                assert np.bincount(targets.numpy(), minlength=len(target)).tolist() == expected.tolist()
                drawn[relation] += len(edges)
    assert sum(map(bool, drawn.values())) > 3, drawn


def test_what_types_of_vertices_cannot_do_is_refused(mag: Path) -> None:
    from gsplit.torch import LinkLoader, SplitLoader, inference

    ds = gsplit.open(mag / "ds")
    several = "has vertices of several types, for which there is no"
    for make, line in (
        (lambda: LinkLoader(ds, [2]), f"{several} LinkLoader; SplitLoader draws"),
        (lambda: inference(lambda k, rows, layer: rows, ds, 1), f"{several} inference; pass seeds="),
        (lambda: gsplit.NeighborLoader(ds, [2]), f"{several} NeighborLoader; gsplit.torch.SplitLoader"),
        (ds.to_scipy, f"{several} to_scipy; relation_edges has"),
        (ds.to_dgl, f"{several} to_dgl; relation_edges has"),
        (ds.to_graphbolt, f"{several} to_graphbolt; relation_edges has"),
        (lambda: ds.features, f"{several} table of all features; features_by_type has"),
    ):
        with pytest.raises(gsplit.DatasetError, match=line):
            make()
    for options, line in (
        ({"device": "cuda"}, "device 'cuda': mini-batches of several types of vertices are made on the CPU only"),
        ({"cache": "20%"}, "cache: a device keeps feature rows of vertices of one type only: leave it out"),
        ({"topology": "device"}, "a GPU samples, the device is cpu"),
        ({"draw_by": "weight"}, "the dataset has no column of one number an edge"),
        ({"seeds": ("paper", [0, 368])}, "seed 368, expected vertices from 0 to 367"),
        ({"fanouts": {"cites": [2]}}, "relation `author/writes/paper`: it has no fanout"),
        ({"fanouts": {"reads": [2], None: [1]}}, "relation `reads`: expected one of paper/cites/paper, "),
        ({"fanouts": {"cites": [2], None: [1, 2]}}, "expected lists of equally many layers, found 'cites' 1, None 2"),
    ):
        with pytest.raises(ValueError, match=line):
            SplitLoader(ds, **{"fanouts": [2], **options})  # type: ignore[arg-type]
    for seeds in ("all", [0, 1]):
        with pytest.raises(TypeError, match="seeds of several types: expected a split, or a type and its vertices"):
            SplitLoader(ds, [2], seeds=seeds)
    with pytest.raises(TypeError, match="seeds of the type 'book': expected one of paper, author, institution"):
        SplitLoader(ds, [2], seeds=("book", "all"))
    layer = next(iter(SplitLoader(ds, [2], 50))).layers[0]
    with pytest.raises(KeyError, match="rows of book: expected types from paper, author"):
        layer.read({"book": np.zeros(3)})
    with pytest.raises(ValueError, match="3 rows of paper, the layer below has"):
        layer.read({"paper": np.zeros(3)})


def test_inference_without_features_is_refused(data: Path) -> None:
    from gsplit.torch import inference

    with pytest.raises(gsplit.DatasetError, match="has no features; pass features="):
        inference(lambda k, rows, layer: rows, data / "few", 1)


def test_differential_mini_batches_are_those_of_the_trainer(data: Path, binary: Path) -> None:
    """Edges, loaded and exchanged rows, epoch by epoch."""
    expected = counts_of_the_trainer(binary, data / "ds", "--batch-size 64")
    assert run(data, 2, "mean", partition="even-2")[0]["counts"] == expected


def test_differential_a_model_in_pytorch_learns_as_the_trainer_does(data: Path, binary: Path) -> None:
    """The loss of an epoch and the parameters after it, from the parameters before it."""
    model = "--model sage --layers 3 --fanouts 4,3,3 --hidden 8 --batch-size 64 --epochs 2 --dropout 0"
    optimizer = "--optimizer sgd --lr 0.05 --momentum 0 --checkpoint run --threads 2 --json"
    words = ["train", "ds", *model.split(), *optimizer.split()]
    said = subprocess.run([binary, *words], cwd=data, capture_output=True, text=True, check=True).stdout
    expected = json.loads(said)["summary"]["epochs"][1]["loss"]
    for ranks in (1, 2):
        found = run(data, ranks, "go_on", run="run")[0]
        assert found["loss"] == pytest.approx(expected, rel=1e-5) and found["off"] < 1e-5


def counts_of_the_trainer(binary: Path, ds: Path, options: str) -> list[list[int]]:
    model = "--model sage --layers 3 --fanouts 4,3,3 --hidden 8 --epochs 2 --threads 2 --json"
    words = f"{model} --parallelism split --partition even-2 --ranks 2 {options}".split()
    said = subprocess.run([binary, "train", ds, *words], capture_output=True, text=True, check=True).stdout
    epochs = json.loads(said)["summary"]["epochs"]
    return [[epoch["edges"], epoch["rows_loaded"], epoch["rows_exchanged"]] for epoch in epochs]


def test_a_topology_that_no_gpu_samples_from_is_refused(data: Path) -> None:
    import torch

    from gsplit.torch import SplitLoader
    from gsplit.torch._gpu import sampling

    gpu: dict[str, Any] = {"device": "cuda", "topology": "pinned"}
    for options, line in (
        ({**gpu, "topology": "part"}, "topology 'part', expected host, device or pinned"),
        ({**gpu, "device": "cpu"}, "topology 'pinned': a GPU samples, the device is cpu: pass device='cuda', or leave"),
        ({**gpu, "draw_by": "kind"}, "topology 'pinned': only the CPU draws with draw_by: leave one of the two out"),
    ):
        with pytest.raises(ValueError, match=f"^{line}"):
            SplitLoader(data / "ds", [2], **options)
    with pytest.raises(ValueError, match="only the CPU samples under 'split': pass parallelism='owned' or 'data'"):
        sampling("device", torch.device("cuda"), "split", None)


@pytest.fixture(scope="module")
def single_links(data: Path) -> dict[str, Any]:
    return run(data, 1, "links")[0]


@pytest.mark.parametrize(("ranks", "parallelism"), [(2, "split"), (3, "split"), (2, "owned"), (3, "data")])
def test_differential_ranks_learn_links_as_one_does(
    data: Path, single_links: dict[str, Any], ranks: int, parallelism: str
) -> None:
    found = run(data, ranks, "links", parallelism=parallelism, partition=partition(ranks))[0]
    np.testing.assert_allclose(found["losses"], single_links["losses"], rtol=1e-5)
    np.testing.assert_allclose(found["gradients"], single_links["gradients"], rtol=1e-4, atol=1e-7)
    if parallelism == "split":
        assert [counts[:2] for counts in found["counts"]] == [counts[:2] for counts in single_links["counts"]]


def test_ranks_without_ends_of_pairs_take_part(data: Path, single_links: dict[str, Any]) -> None:
    found = run(data, 3, "links", partition="uneven-3", epochs=1)
    np.testing.assert_allclose(found[0]["losses"], single_links["losses"][: len(found[0]["losses"])], rtol=1e-5)
    assert found[2]["without_seeds"] > 0


@pytest.mark.parametrize("ds", ["ds", "taste"])
def test_differential_mini_batches_of_edges_are_those_of_the_trainer(data: Path, binary: Path, ds: str) -> None:
    """Edges, loaded and exchanged rows, epoch by epoch: of one kind of vertices and of two."""
    options = "--task link --negatives 2 --batch-size 300 --edge-seed 3 --test-edges 0.2"
    expected = counts_of_the_trainer(binary, data / ds, options)
    found = run(data, 2, "links", ds, partition="even-2", edge_seed=3, test_edges=0.2)
    assert found[0]["counts"] == expected


@pytest.mark.parametrize(("ds", "ranks"), [("ds", 1), ("ds", 3), ("taste", 2)])
def test_oracle_pairs_and_what_is_sampled_for_them(data: Path, ds: str, ranks: int) -> None:
    from torch_ranks import edges_of

    found = run(data, ranks, "pairs", ds, partition=partition(ranks))
    for rank in found:
        assert not any(rank["wrong"].values()), rank["wrong"]
    # Each edge once, except the held-out ones; one of two directions.
    edges, out = edges_of(gsplit.open(data / ds)), held_out(data / ds)
    of_all, used = set(map(frozenset, edges)), [frozenset(edges[e]) for e in found[0]["learnt"]]
    used += map(frozenset, out)
    assert set(used) == of_all and len(used) == len(of_all)
    assert 0.1 < len(out) / len(of_all) < 0.2


def held_out(ds: Path, **options: Any) -> list[tuple[int, int]]:
    from gsplit.torch import LinkLoader

    loader = LinkLoader(ds, [1], **options)
    return [(u, v) for split in ("valid", "test") for u, v in loader.held_out(split).T.tolist()]


def test_held_out_edges_follow_from_the_options(data: Path) -> None:
    from gsplit.torch import LinkLoader

    both = LinkLoader(data / "ds", [1])
    assert both.held_out("valid").shape[0] == 2 and both.held_out("valid").shape[1] < both.held_out("test").shape[1]
    assert held_out(data / "ds") == held_out(data / "ds", threads=1) != held_out(data / "ds", edge_seed=1)
    assert held_out(data / "ds", valid_edges=0, test_edges=0) == []
    assert set(held_out(data / "ds", test_edges=0)) == set(held_out(data / "ds")[: both.held_out("valid").shape[1]])
    # The dataset's own.
    own = LinkLoader(data / "own", [1], 2)
    pairs = [np.load(data / "own" / "links" / f"{split}.npy").T.tolist() for split in ("valid", "test")]
    assert [own.held_out("valid").tolist(), own.held_out("test").tolist()] == pairs
    assert sum(len(batch.edge_ids) for batch in own) == len(np.load(data / "own" / "links" / "train.npy"))


def test_links_that_make_no_sense_are_refused(data: Path) -> None:
    from gsplit.torch import LinkLoader

    for options, line in (
        ({"negatives": 0}, "negatives 0, expected 1 to 1000"),
        ({"valid_edges": 0.95}, "valid_edges 0.95 and test_edges 0.1, expected shares from 0 on, together below 1"),
        ({"test_edges": float("nan")}, "together below 1"),
        ({"edge_seed": -1}, r"edge_seed -1, expected one from 0 to 2\^64 - 1"),
        ({"batch_size": 0}, "batch_size 0, expected at least 1"),
    ):
        with pytest.raises(ValueError, match=line):
            LinkLoader(data / "ds", [2], **options)
    with pytest.raises(
        ValueError, match=r"valid_edges 0\.2: the dataset has a split of links of its own: leave it out"
    ):
        LinkLoader(data / "own", [2], valid_edges=0.2)
    with pytest.raises(ValueError, match="split 'train', expected valid or test"):
        LinkLoader(data / "ds", [2]).held_out("train")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^no edge is left to train on: hold out fewer for valid and test, or"):
        LinkLoader(data / "few", [2], valid_edges=0.5, test_edges=0.499999)


def test_an_epoch_that_all_ranks_leave_does_not_disturb_the_next(data: Path) -> None:
    one, two = (run(data, ranks, "mean", leave=1, partition=partition(ranks))[0] for ranks in (1, 2))
    assert len(two["losses"]) == 2
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5)


# torch ends a process that fails with one signal or another.
def test_a_rank_that_ends_ends_the_others(data: Path) -> None:
    processes = start(data, 2, "mean", partition="even-2", dies=1)
    said, _ = said_by(processes)
    assert processes[0].returncode != 0 and "ConnectionError: rank 0, which " in said, said


def test_ranks_that_make_other_loaders_are_told_so(data: Path) -> None:
    processes = start(data, 2, "mean", partition="even-2", other_seed=1)
    for process, said in zip(processes, said_by(processes)):
        told = "ValueError: seed is 0 on rank 0 and 7 on rank 1: all ranks make the same loader\n"
        assert process.returncode != 0 and told in said, said


def test_what_does_not_fit_is_refused(data: Path) -> None:
    from gsplit.torch import SplitLoader
    from gsplit.torch._cache import Drawn
    from gsplit.torch._loader import _partition

    drawn = Drawn("3,2", 64, None, None)
    ds = gsplit.open(data / "ds")
    with pytest.raises(ValueError, match="parallelism 'both', expected split, owned or data"):
        SplitLoader(ds, [2], parallelism="both")  # type: ignore[arg-type]
    with pytest.raises(gsplit.DatasetError, match="has several partitions into 3 parts: even-3, uneven-3"):
        _partition(ds, None, 3, drawn)
    with pytest.raises(gsplit.DatasetError, match=r"no partition into 7 parts .* `gsplit partition .* --parts 7`"):
        _partition(ds, None, 7, drawn)
    with pytest.raises(gsplit.DatasetError, match="partition even-2 has 2 parts, the ranks are 4"):
        _partition(ds, "even-2", 4, drawn)
    with pytest.raises(ValueError, match="prefetch -1, expected at least 0"):
        SplitLoader(ds, [2], prefetch=-1)


def test_draws_by_weight_go_with_the_edges_and_tell_their_factors(data: Path) -> None:
    from gsplit.torch import LinkLoader, SplitLoader

    kinds = np.asarray(gsplit.open(data / "ds").edge_columns["kind"])
    for loader in (SplitLoader(data / "ds", [2], draw_by="kind"), LinkLoader(data / "ds", [2], draw_by="kind")):
        (layer,) = next(iter(loader)).layers
        # Edges of weight 0 are never drawn.
        assert kinds[layer.edge_ids].min() > 0
        assert layer.factors is not None and layer.factors.shape == layer.edge_ids.shape
    for make in (SplitLoader, LinkLoader):
        with pytest.raises(ValueError, match=r"draw_by 'kinds', expected .*'kind'"):
            make(data / "ds", [2], draw_by="kinds")


def loader_threads() -> int:
    names = (task.read_text() for task in Path("/proc/self/task").glob("*/comm"))
    return sum(name == "gsplit-loader\n" for name in names)


def test_an_epoch_leaves_no_thread_behind(data: Path) -> None:
    from gsplit.torch import SplitLoader

    loader = SplitLoader(data / "ds", [3, 2], 50, prefetch=2)
    assert len(list(loader)) == len(loader) == 7
    assert loader_threads() == 0
    for _ in loader:
        break
    gc.collect()
    assert loader_threads() == 0
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    del first
    assert len(list(second)) == len(loader) - 1


def test_a_loader_stays_in_its_process(data: Path) -> None:
    from gsplit.torch import SplitLoader

    loader = SplitLoader(data / "ds", [3, 2], 50)
    with pytest.raises(TypeError, match="belongs to its process and rank: make one in each"):
        pickle.dumps(loader)

    def is_refused() -> bool:
        with pytest.raises(RuntimeError, match="without a DataLoader's workers"):
            next(iter(loader))
        return True

    assert in_a_fork(is_refused)


def test_mini_batches_do_not_depend_on_how_they_are_made(data: Path) -> None:
    from gsplit.torch import SplitLoader

    def content(**options: Any) -> list[Any]:
        batches = SplitLoader(data / "ds", [3, 2], 50, **options)
        return [[layer.edge_index.tolist() for layer in batch.layers] + batch.x.tolist() for batch in batches]

    assert content() == content(prefetch=0, threads=2) == content(prefetch=3)
    assert content() == content(cache="30%") == content(cache="100%", prefetch=0) == content(cache=0)
    assert content() == content(load_features="disk") == content(load_features="disk", cache="30%")


@pytest.mark.parametrize("parallelism", ["split", "owned"])
def test_differential_rows_of_a_cache_are_those_of_the_host(data: Path, parallelism: str) -> None:
    kept, all_read = (
        run(data, 2, "mean", parallelism=parallelism, partition="even-2", epochs=1, **options)
        for options in ({"cache": "20%"}, {})
    )
    assert kept == all_read


def test_a_cache_has_the_hottest_rows_that_fit(data: Path) -> None:
    from gsplit.torch._cache import hottest, num_rows

    ds = gsplit.open(data / "ds")
    loads = ds.presample("hot").input
    kept = hottest(ds, "hot", num_rows(ds, 6 * 4 * 10 + 1, True))
    assert len(kept) == 10 and loads[kept].min() >= np.sort(loads)[-10]
    assert num_rows(ds, "10%", True) == 70
    for cache in ("20", "-1%", "101%", "x%", -1, True):
        with pytest.raises(ValueError, match=r"expected a number of bytes or a percentage of the rows, e.g. '20%'"):
            num_rows(ds, cache, True)
    with pytest.raises(gsplit.DatasetError, match="has no presample `cold`"):
        hottest(ds, "cold", 10)
