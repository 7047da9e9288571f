"""Time of loading and of training in PyTorch with gsplit's loaders, compared with PyG and DGL.

Fanouts 15,10,5, mini-batches of 1024 seeds, ogbn-arxiv with 128 generated features; at most four
cores. It needs `make wheel`. Both parts are measured by default.

    --part epochs     three layers of GraphSAGE-mean, hidden 256, Adam, f32: forward, backward and
                      update included. Seconds of a part of an epoch, after five mini-batches, are
                      scaled to all mini-batches. A peer and the loader that is compared with it
                      have the same layers. "Held" mini-batches are in memory: the floor. All run
                      tuned, with OMP_WAIT_POLICY=passive. Rows exchanged between ranks must be
                      those that `gsplit evaluate` counts.
    --part loaders    the loop over the loader only. `form="pyg"` is compared with PyG, which
                      expands a vertex once, and `form="blocks"` with DGL and GraphBolt; edges must
                      agree within two percent. Peers run with no and with two workers, also tuned.

PyG's loader needs torch-sparse or pyg-lib, of which PyPI has no wheels: torch-sparse is compiled
once, for about ten minutes. gsplit runs in the environment of its peer: PyG on PyTorch 2.11, DGL
2.1.0 (the last on PyPI) on PyTorch 2.2.
"""

import os
import shutil
import subprocess
import zipfile
from typing import NamedTuple

import harness
from harness import PEERS, REAL, ROOT, TUNED, WORK, BenchError

ROUNDS, CORES, PARTS = 5, 4, ("epochs", "loaders")
OPTIONS = {"--batches": {"type": int, "default": 40, "metavar": "N", "help": "timed mini-batches of a run [default: 40]"}}
FANOUTS, BATCH_SIZE, WARM_UP, KEY = "15,10,5", 1024, 5, "bench-torch"
SAMPLER = ("torch-scatter==2.1.2", "torch-sparse==0.6.18")


class Contender(NamedTuple):
    """A contender of peers/loaders.py, its environment, its processes, and whether glibc is tuned."""

    name: str
    environment: str
    workers: int = 0
    ranks: int = 1
    tuned: bool = True

    def __str__(self):
        workers = f", {self.workers} workers" if self.workers else ""
        ranks = f", {self.ranks} processes" if self.ranks > 1 else ""
        tuned = ", tuned" if self.tuned and self.name.startswith("load-") else ""
        return f"{NAMES[self.name]}{workers}{ranks}{tuned}"


NAMES = {
    "pyg": "PyG's loader and layers",
    "gsplit-pyg": "`NeighborLoader`, PyG's layers",
    "split": "`SplitLoader`, PyG's layers",
    "dgl": "DGL's loader and layers",
    "split-dgl": "`SplitLoader`, DGL's layers",
    "held-pyg": "held, PyG's layers on one graph",
    "held-split": "held, PyG's layers on bipartite graphs",
    "held-dgl": "held, DGL's layers",
    "load-gsplit-pyg": 'gsplit, `form="pyg"`',
    "load-gsplit-blocks": 'gsplit, `form="blocks"`',
    **{"load-pyg": "PyG", "load-dgl": "DGL", "load-graphbolt": "GraphBolt"},
}
SINGLE, WHOLE, FOR_DGL = Contender("split", "pyg"), Contender("gsplit-pyg", "pyg"), Contender("split-dgl", "dgl")
PEER_LOADERS = {peer: [Contender(peer, peer, workers) for workers in (0, 2)] for peer in ("pyg", "dgl")}
FLOORS = {of: Contender(f"held-{name}", of.environment) for of, name in ((WHOLE, "pyg"), (SINGLE, "split"), (FOR_DGL, "dgl"))}


def loaders(name, environment):
    return [Contender(f"load-{name}", environment, workers, 1, tuned) for workers in (0, 2) for tuned in (False, True)]


FORMS = {
    Contender("load-gsplit-pyg", "pyg", tuned=False): loaders("pyg", "pyg"),
    Contender("load-gsplit-blocks", "dgl", tuned=False): [*loaders("dgl", "dgl"), *loaders("graphbolt", "dgl")],
}


def package():
    """The folder of the unpacked newest wheel: one for all environments."""
    wheels = sorted((ROOT / "target" / "wheel").glob("gsplit-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        raise BenchError("target/wheel has no wheel: run `make wheel`")
    folder = WORK / "gsplit-package"
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def environments():
    """{environment: (its Python or None, the PYTHONPATH)}."""
    own = package()
    dgl, pyg = harness.peer_environments("dgl", "pyg")
    python, more = with_sampler(pyg) if pyg else (None, [])
    return {"dgl": (dgl, str(own)), "pyg": (python, os.pathsep.join(map(str, [own, *more])))}


def with_sampler(python):
    """PyG's environment with torch-sparse; (None, []) if it cannot be compiled."""
    folder = WORK / "torch-sparse"
    works = [python, "-c", "import torch_geometric.typing as t; exit(not (t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE))"]
    path = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
    if subprocess.run(works, env=path).returncode != 0:
        harness.say("compiling torch-sparse for PyG")
        shutil.rmtree(folder, ignore_errors=True)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        words = [python, "-m", "pip", "install", *options, "--target", folder, *SAMPLER]
        done = subprocess.run(words, env={**os.environ, "FORCE_ONLY_CPU": "1", "CFLAGS": "-g0"})
        if done.returncode != 0 or subprocess.run(works, env=path).returncode != 0:
            harness.say("PyG is left out: its loader needs torch-sparse or pyg-lib")
            return None, []
    return python, [folder]


def contender(where, folder, batches):
    """A function that runs a contender; None without its environment."""

    def once(who):
        python, path = where[who.environment]
        if python is None:
            return None
        threads = min(len(os.sched_getaffinity(0)), 2) if who.name.startswith("load-") else len(os.sched_getaffinity(0))
        words = [PEERS / "loaders.py", who.name, folder, FANOUTS, BATCH_SIZE, batches, threads, who.workers]
        if who.ranks > 1:
            words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", who.ranks, *words]
        settings = (TUNED if who.tuned else {}) | ({} if who.name.startswith("load-") else {"OMP_WAIT_POLICY": "passive"})
        child = harness.run([python, *words], PYTHONPATH=path, PYTHONWARNINGS="ignore", **settings)
        return {**child.json(), "others_cpus": child.others_cpus}

    return once


def check(folder, runs, several, batches):
    """Fails if ranks learn or do something else than one, or not what `gsplit evaluate` counts."""
    for who in several:
        options = ["--partition", f"{KEY}-{who.ranks}", "--presample", KEY, "--batches", batches, "--seed", 0, "--json"]
        maps = harness.gsplit("evaluate", folder, *options).json()["maps"]
        (found,) = (one for one in maps if one["key"] == f"{KEY}-{who.ranks}")
        split = found["split_layers"][-1]
        means = sum(layer["edges"] for layer in split["layers"]), split["rows_loaded"], found["all"]["rows_exchanged"]
        expected = [round(mean * batches) for mean in means]
        for run in runs[who]:
            counts = [run[field] for field in ("edges", "rows_loaded", "rows_exchanged")]
            if counts != expected:
                raise BenchError(f"{who}: edges, rows loaded and exchanged {counts}, evaluate counts {expected}")
            if abs(run["loss"] - runs[SINGLE][0]["loss"]) > 1e-3 * run["loss"]:
                raise BenchError(f"{who}: loss {run['loss']}, of one rank {runs[SINGLE][0]['loss']}")


def epochs(bench, where, folder):
    batches = 10 if bench.quick else bench.args.batches
    # Each rank has a core at least.
    several = [Contender("split", "pyg", ranks=size) for size in (2, 4) if size <= len(os.sched_getaffinity(0))]
    harness.gsplit("presample", folder, "--fanouts", FANOUTS, "--batch-size", BATCH_SIZE, "--key", KEY, "--quiet")
    for who in several:
        harness.gsplit("partition", folder, "--parts", who.ranks, "--presample", KEY, "--key", f"{KEY}-{who.ranks}", "--quiet")
    whole = harness.gsplit("inspect", folder, "--json").json()["splits"]["train"] // BATCH_SIZE
    if WARM_UP + batches > whole:
        raise BenchError(f"--batches {batches}: an epoch has {whole} mini-batches, of which {WARM_UP} are not timed")
    table = harness.Table("an epoch of training", "contender", "epoch, s", "range", "CPU s of an epoch", "ms a mini-batch on rank 0", "others' CPUs")
    everybody = [*PEER_LOADERS["pyg"], WHOLE, SINGLE, *several, *PEER_LOADERS["dgl"], FOR_DGL, *FLOORS.values()]
    runs = table.interleave(everybody, bench.rounds, contender(where, folder, batches))
    for found in runs.values():
        for run in found:
            run["epoch"], run["cpu"] = (run[field] * whole / batches for field in ("seconds", "cpu_seconds"))
    for who, found in runs.items():
        middle = sorted(found, key=lambda run: run["seconds"])[len(found) // 2]["sections"]
        sections = ", ".join(f"{name} {1e3 * spent / batches:.0f}" for name, spent in middle.items() if 1e3 * spent >= batches / 2)
        table.add(str(who), runs.median(who, "epoch"), runs.span(who, "epoch"), runs.median(who, "cpu"), sections, runs.median(who, "others_cpus"))
    bench.keep(table)
    pairs = {"`NeighborLoader` / PyG": (WHOLE, PEER_LOADERS["pyg"]), "`SplitLoader` / PyG": (SINGLE, PEER_LOADERS["pyg"])}
    pairs |= {"`SplitLoader` / DGL": (FOR_DGL, PEER_LOADERS["dgl"])} | {f"{who.ranks} processes / 1": (who, [SINGLE]) for who in several}
    pairs |= {f"{NAMES[of.name]} / model alone": (of, [floor]) for of, floor in FLOORS.items()}
    ratios = harness.Table("ratios to the fastest peer", "ratio", "seconds", "CPU seconds")
    for name, (own, others) in pairs.items():
        best = [runs.least(others, field) for field in ("epoch", "cpu")]
        if own in runs and None not in best:
            ratios.add(name, *(runs.median(own, field) / runs.median(peer, field) for field, peer in zip(("epoch", "cpu"), best)))
    bench.keep(ratios)
    check(folder, runs, [who for who in several if who in runs], WARM_UP + batches)


def only_loaders(bench, where, folder):
    batches = 10 if bench.quick else bench.args.batches
    table = harness.Table("loaders alone", "loader", "mini-batches/s", "range", "edges", "vertices", "gsplit / this", "others' CPUs")
    everybody = [each for own, others in FORMS.items() for each in (own, *others)]
    found = table.interleave(everybody, bench.rounds, contender(where, folder, batches))
    for own, others in FORMS.items():
        runs = harness.Runs({who: found[who] for who in (own, *others) if who in found})
        for run in (run for of in runs.values() for run in of):
            run["rate"] = batches / run["seconds"]
        if runs:
            runs.alike("edges", 0.02)
        for who in runs:
            rate, edges, vertices, cpus = (runs.median(who, field) for field in ("rate", "edges", "vertices", "others_cpus"))
            table.add(str(who), rate, runs.span(who, "rate"), edges / batches, vertices / batches, runs.median(own, "rate") / rate, cpus)
    bench.keep(table)


def measure(bench):
    where = environments()
    folder = harness.dataset("torch-ogbn-arxiv", "convert", REAL / "ogbn_arxiv", "--symmetrise", "--features", "random:128")
    if folder is None or where["pyg"][0] is None:
        raise BenchError("nothing to measure: the graph is missing, or PyG's environment could not be made")
    for part, run in (("epochs", epochs), ("loaders", only_loaders)):
        if bench.args.part in (None, part):
            run(bench, where, folder)
