"""Predictions of `gsplit plan` for the machines of the papers, with the papers' measurements: the
tables plan-* of reproduce.py.

The papers' graphs are not here: stand-ins with their numbers of vertices and edges are generated
one after another, planned with, and removed. If a graph is scaled down by s, so are mini-batches
and every rate and memory of the hardware; latencies stay. Each mini-batch then takes as long as the
whole one on the whole machine, since the same portion of the graph is reached and of the rows is
cached. Only the model does not shrink: the seconds of its update and of its gradients are divided
by s again. The excess of the busiest rank over the mean is left out there, since it is noise of few
seeds. The papers' systems sample, load and compute one after another, so phases are added up.
"""

import json
import shlex
import shutil
import tomllib
from typing import NamedTuple

import harness
from harness import DATA, INPUTS, ROOT

V100, P100, A6000 = ROOT / "profiles" / "v100-4-nvlink.toml", INPUTS / "p100-hosts.toml", INPUTS / "a6000-hosts.toml"
BY_EDGES = ("drawing", "drawing over the bus", "products", "aggregation", "element-wise operations")


class Graph(NamedTuple):
    """A published graph, and how it is scaled."""

    name: str
    vertices: int
    edges: int
    directed: bool
    scale: int
    train: int
    """Training vertices, published or, where they are not, as many as reach all of the graph."""


class Published(NamedTuple):
    """GSplit's Table 1, millions per epoch (4 micro-batches, 1 mini-batch), and seconds of Table 3."""

    graph: Graph
    width: int
    edges: tuple
    rows: tuple
    seconds: dict


TABLE3 = (
    Published(
        Graph("Orkut", 3_072_441, 117_185_083, False, 16, 30_720),
        512,
        (926, 751),
        (422, 169),
        {
            "sage": {"DGL": (1.5, 62.7, 9.2), "P3": (4.0, 1.5, 8.5), "Quiver": (4.9, 4.3, 8.7), "Edge": (1.9, 1.3, 25.1), "GSplit": (1.9, 0.1, 14.8)},
            "gat": {
                "DGL": (1.5, 62.8, 17.1),
                "P3": (4.0, 1.7, 37.6),
                "Quiver": (4.7, 4.2, 16.4),
                "Edge": (1.9, 1.3, 33.3),
                "GSplit": (1.9, 0.1, 20.5),
            },
        },
    ),
    Published(
        Graph("papers100M", 111_059_956, 1_615_685_872, True, 128, 1_207_179),
        128,
        (452, 389),
        (231, 154),
        {
            "sage": {
                "DGL": (4.6, 9.5, 11.3),
                "P3": (3.3, 11.5, 25.8),
                "Quiver": (11.8, 10.4, 11.7),
                "Edge": (11.7, 0.1, 16.3),
                "GSplit": (3.9, 2.6, 11.8),
            },
            "gat": {
                "DGL": (4.7, 9.0, 31.7),
                "P3": (3.3, 11.3, 65.7),
                "Quiver": (11.0, 11.0, 30.5),
                "Edge": (11.5, 0.1, 40.1),
                "GSplit": (3.8, 2.3, 31.1),
            },
        },
    ),
    Published(
        Graph("Friendster", 65_608_366, 1_806_067_135, False, 128, 327_680),
        128,
        (13_400, 13_100),
        (11_400, 9_400),
        {
            "sage": {
                "DGL": (62.7, 283.4, 61.1),
                "P3": (85.9, 350.8, 151.5),
                "Quiver": (132.5, 24.9, 63.6),
                "Edge": (65.7, 1.0, 121.8),
                "GSplit": (41.2, 2.2, 98.9),
            },
            "gat": {
                "DGL": (62.6, 284.8, 245.9),
                "P3": (76.5, 351.4, 613.8),
                "Quiver": (135.5, 24.8, 243.5),
                "Edge": (106.1, 0.7, 368.2),
                "GSplit": (62.1, 2.2, 283.5),
            },
        },
    ),
)
# P3's Table 4, seconds of an epoch by model: DGL, which hashes vertices to hosts, and P3.
TABLE4 = (
    (Graph("OGB-Product", 2_449_029, 61_859_140, False, 1, 196_615), 100, {"gcn": (4.578, 1.111), "sage": (4.727, 1.233), "gat": (5.067, 1.912)}),
    (
        Graph("OGB-Paper", 111_059_956, 1_615_685_872, True, 32, 1_207_179),
        128,
        {"gcn": (9.575, 2.606), "sage": (9.830, 3.107), "gat": (10.662, 5.138)},
    ),
)
# GraNNDis's Table 4: the speed-up over full-graph training on all servers, by layers.
GRANNDIS = (
    (Graph("ogbn-arxiv", 169_343, 1_166_243, False, 1, 90_941), 128, {3: 1.64, 28: 1.84, 56: 1.89}),
    (Graph("ogbn-products", 2_449_029, 61_859_140, False, 8, 196_615), 100, {3: 1.63, 28: 1.23, 56: 1.23}),
    (Graph("Reddit", 232_965, 57_307_946, False, 8, 153_431), 602, {3: 1.66, 28: 1.95, 56: 1.59}),
)
# The rows' width matters to no count.
KINDS = {
    "rmat": ("rmat", "--features", "random:1", "--feature-dtype", "i8"),
    "community": ("community", "--classes", 256, "--feature-dim", 1, "--feature-dtype", "i8"),
}


def run(*words):
    """The output of `gsplit WORDS`."""
    harness.say(shlex.join(["gsplit", *map(str, words)]))
    return harness.gsplit(*words, "--quiet").output


class StandIn:
    """A generated graph, while it is there."""

    def __init__(self, graph, kind, args):
        self.graph, self.args = graph, args
        self.scale = graph.scale * (16 if args.quick else 1)
        self.name = f"{graph.name}-{kind}".lower()
        self.words = (
            *("generate", *KINDS[kind], *(("--directed",) if graph.directed else ())),
            *("--vertices", graph.vertices // self.scale, "--edges", graph.edges // self.scale, "--memory", "4GiB"),
            *("--random-split", f"{graph.train / graph.vertices:.5f},0.0005,0.0005", "--out", self.name),
        )

    def __enter__(self):
        if not (DATA / self.name / "dataset.json").is_file():
            harness.need_disk(DATA, 6e9)
            run(*self.words[:-1], DATA / self.name)
        return self

    def __exit__(self, *_):
        if not self.args.keep:
            shutil.rmtree(DATA / self.name, ignore_errors=True)

    def plan(self, table, profile, batch, *words, by_host=False):
        """Work and seconds of a mini-batch by system, scaled up again; `by_host`: one GPU per host."""
        words = (*words, *(("--batch-size", batch // self.scale, "--batches", 10) if batch else ()))
        table.commands += [shlex.join(["gsplit", *map(str, line)]) for line in (self.words, ("plan", self.name, *words))]
        small, latency = scaled(profile, self.scale, by_host)
        said = json.loads(run("plan", DATA / self.name, *words, "--profile", small, "--json"))
        rows = [*said["plans"], *said["apart"], *(row["plan"] for row in said["left_out"] if row["plan"])]
        return {row["name"]: Row(row["work"], self.scale, phases(row, self.scale, latency)) for row in rows}


class Row(NamedTuple):
    """A system."""

    work: dict
    scale: int
    phases: dict

    def edges(self):
        return self.scale * sum(layer["edges"] for layer in self.work["layers"])

    def rows(self):
        return self.scale * self.work["rows_loaded"]

    def total(self):
        """All phases of a mini-batch, one after another."""
        return sum(self.phases.values())

    def seconds(self):
        """Sampling, loading, and forward and backward with all that is exchanged."""
        return self.phases["sample"], self.phases["load"], self.phases["compute"] + self.phases["exchange"]


def scaled(profile, scale, by_host):
    """A file with the smaller machine, and the latency of its slowest links."""
    known = tomllib.loads(profile.read_text())
    links = {name: known.pop(name) for name in ("dense", "peer", "bus", "network") if name in known}
    latency = max(link.get("latency", 0.0) for link in links.values())
    rates = ("memory", "sampled_edges", "rows", "stream", "bytes", "f32", "bf16")
    gpus, between = (known["ranks"] if by_host else 1), ("peer", "network")
    links |= {f"[pair].{at}": pair for at, pair in enumerate(known.pop("pair", []))}
    known["ranks"] //= gpus

    def lines(of, times):
        return [f"{name} = {json.dumps(times * value / scale if name in rates else value)}" for name, value in of.items()]

    parts = (("[[pair]]" if "." in name else f"[{name}]", *lines(link, 1 if name in between else gpus)) for name, link in links.items())
    text = [*lines(known, gpus), *(line for part in parts for line in part)]
    path = DATA / f"plan-{profile.stem}-{scale}{'-by-host' if by_host else ''}.toml"
    path.write_text("\n".join(text) + "\n")
    return path, latency


def phases(row, scale, latency):
    """Seconds of the whole graph's mini-batch by phase; of the mean rank if the graph is scaled."""
    sums = dict.fromkeys(("sample", "load", "compute", "exchange"), 0.0)
    for piece in row["cost"]["pieces"]:
        what, seconds = piece["what"], piece["seconds"]
        if what in ("update", "gradients"):
            fixed = 2 * latency if what == "gradients" and seconds > 0 else 0.0
            seconds = fixed + (seconds - fixed) / scale
        elif scale > 1 and what in BY_EDGES:
            seconds /= row["work"]["edge_imbalance"]
        elif scale > 1 and what.startswith("feature rows") and row["name"] != "P3":
            seconds /= row["work"]["row_imbalance"]
        sums[piece["phase"]] += seconds
    return sums


def order(seconds):
    return " < ".join(sorted(seconds, key=seconds.get))


def gsplit_table3(args):
    """Epochs of as many mini-batches as sample the edges of Table 1."""
    counts = harness.Table("", "graph", "stand-in", "mini-batches", "rows, 1 mini-batch, M", "edges, 4 / 1", "rows, 4 / 1")
    cells = harness.Table("", "graph", "model", "stand-in", "system", "S", "L", "FB", "total")
    orders = harness.Table("", "graph", "model", "stand-in", "predicted", "published", "rank correlation")
    for published in TABLE3:
        for kind in KINDS:
            with StandIn(published.graph, kind, args) as graph:
                for model, systems in published.seconds.items():
                    words = ("--model", model, *(("--heads", 4) if model == "gat" else ()), "--hidden", 256, "--fanouts", "15,15,15")
                    names = ("--systems", "dgl,quiver,p3,edge,gsplit", "--feature-dim", published.width)
                    found = graph.plan(cells, V100, 1024, *words, *names)
                    data, split = found["DGL"], found["GSplit"]
                    steps = published.edges[1] * 1e6 / split.edges()
                    if model == "sage":
                        ratios = [
                            (getattr(data, of)() / getattr(split, of)(), theirs[0] / theirs[1])
                            for of, theirs in (("edges", published.edges), ("rows", published.rows))
                        ]
                        rows = (steps * split.rows() / 1e6, published.rows[1])
                        counts.add(published.graph.name, kind, steps, rows, *ratios)
                    totals = {}
                    for system, theirs in systems.items():
                        ours = [steps * seconds for seconds in found[system].seconds()]
                        totals[system] = sum(ours)
                        pairs = [*zip(ours, theirs, strict=True), (sum(ours), sum(theirs))]
                        cells.add(published.graph.name, model, kind, system, *pairs)
                    known = {system: sum(seconds) for system, seconds in systems.items()}
                    correlation = harness.spearman(list(totals.values()), list(known.values()))
                    orders.add(published.graph.name, model, kind, order(totals), order(known), correlation)
    return {"plan-table1": counts, "plan-table3": cells, "plan-table3-order": orders}


def p3_table4(args):
    """Each of 16 GPUs has mini-batches of 1,000. P3 slices columns by host, gsplit by rank."""
    table = harness.Table("", "graph", "model", "DGL", "P3, columns by host", "DGL / P3", "P3, columns by GPU")
    for graph, width, models in TABLE4:
        kind = "rmat" if graph.directed else "community"
        with StandIn(graph, kind, args) as stand_in:
            run("partition", DATA / stand_in.name, "--partitioner", "random", "--parts", 16, "--key", "hash")
            table.commands.append(f"gsplit partition {stand_in.name} --partitioner random --parts 16 --key hash")
            for model, theirs in models.items():
                words = ("--model", model, *(("--heads", 8) if model == "gat" else ()), "--hidden", 32, "--layers", 2, "--fanouts", "25,10")
                names = ("--systems", "dgl,p3", "--partition", "hash", "--feature-dim", width)
                by_gpu = stand_in.plan(table, P100, 16_000, *words, *names)
                by_host = stand_in.plan(table, P100, 16_000, *words, "--systems", "p3", "--feature-dim", width, by_host=True)
                # Features are on their vertices' hosts, and fetched by the host that computes.
                rows = (by_gpu["split 1 of 2"], by_host["P3"], by_gpu["P3"])
                dgl, p3, ranks = (graph.train / 16_000 * sum(row.seconds()) for row in rows)
                pairs = ((dgl, theirs[0]), (p3, theirs[1]), (dgl / p3, theirs[0] / theirs[1]), (ranks, theirs[1]))
                table.add(graph.name, model, *pairs)
    return {"plan-p3": table}


def song_jiang(args):
    """Seconds of loading only, by the profile's rates and the loads that `gsplit place` expects."""
    table = harness.Table("", "stand-in", "GPUs", "placement", "own, %", "peers, %", "host, %", "random / it", "published")
    rates = tomllib.loads(V100.read_text())
    own, bus = rates["rows"], rates["bus"]["bytes"]
    for kind in KINDS:
        with StandIn(TABLE3[1].graph, kind, args) as stand_in:
            folder, batch = DATA / stand_in.name, 1024 // stand_in.scale
            run("presample", folder, "--fanouts", "15,10,5", "--batch-size", batch, "--epochs", 10, "--key", "place")
            for gpus in (2, 4):
                # Like in a profile: the slowest pair of GPUs may take longer than the ports.
                pairs = (pair["bytes"] for pair in rates["pair"] if max(pair["ranks"]) < gpus)
                peer = min(rates["peer"]["bytes"], (gpus - 1) * min(pairs))
                links = (f"--host-bandwidth={bus / 1e9:g}GB", f"--peer-bandwidth={peer / 1e9:g}GB")
                run("partition", folder, "--partitioner", "random", "--parts", gpus, "--key", f"random-{gpus}")
                words = (f"--partition=random-{gpus}", "--presample=place", "--cache=20%", "--parallelism=data", "--rule=song-jiang", *links)
                table.commands.append(shlex.join(["gsplit", "place", stand_in.name, *words]))
                said = json.loads(run("place", folder, *words, "--json"))
                asked = next(point for point in said["curve"] if point["asked"])["placements"]["song-jiang"]
                loads = [asked[where] / sum(asked[where] for where in ("local", "peer", "host")) for where in ("local", "peer", "host")]
                # Every GPU holds another fifth of the rows, whichever.
                random = [0.2, 0.2 * (gpus - 1), 1 - 0.2 * gpus]
                slow, fast = (sum(part / rate for part, rate in zip(parts, (own, peer, bus), strict=True)) for parts in (random, loads))
                for name, parts, ratio in (("random", random, 1.0), ("Algorithm 1", loads, slow / fast)):
                    table.add(kind, str(gpus), name, *(100 * part for part in parts), ratio, "2.4 to 4.0" if name != "random" else "")
    return {"plan-song-jiang": table}


def granndis(args):
    """Epochs of full-graph training that is split over all servers, divided by GraNNDis's."""
    table = harness.Table(
        "", "graph", "layers", *(f"{what}, {kind}" for kind in KINDS for what in ("full graph / GraNNDis", "read beyond a server, %"))
    )
    for graph, width, published in GRANNDIS:
        cells = {layers: [graph.name, str(layers)] for layers in published}
        for kind in KINDS:
            with StandIn(graph, kind, args) as stand_in:
                for layers, theirs in published.items():
                    words = ("--systems", "granndis", "--model", "resgcn", "--layers", layers, "--hidden", 64, "--feature-dim", width)
                    found = stand_in.plan(table, A6000, 0, *words)
                    full, ours = found["full graph"], found["GraNNDis"]
                    beyond = 100 * (ours.rows() / full.rows() - 1)
                    cells[layers] += [(full.total() / ours.total(), theirs), beyond]
        for row in cells.values():
            table.add(*row)
    return {"plan-granndis": table}


TABLES = {"plan-gsplit": gsplit_table3, "plan-p3": p3_table4, "plan-song-jiang": song_jiang, "plan-granndis": granndis}
