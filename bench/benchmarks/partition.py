"""Time, memory and cut of `gsplit partition`, compared with METIS 5.2.1, KaMinPar and Mt-KaHyPar.

An imbalance of 3 %, two threads. Seconds are those of partitioning only: METIS (called by gsplit)
is not charged for symmetrising the graph, nor KaMinPar for loading it. Memory is the peak beyond
the mapped input, for KaMinPar beyond the loaded graph. Weighted cuts count 1 + the pre-sampled
counters of both directions for each pair, which all contenders minimise. A round is another seed.

    --part graphs   4 and 8 parts of real and generated graphs [default]
    --part many     4 to 16,384 parts of ogbn-arxiv, com-DBLP, a grid and roads; 8 to 1,000 of a
                    path and a tree; unit weights. KaMinPar has the better of its presets `default`
                    and `largek`
    --part high     --quality high and Mt-KaHyPar, 4, 8 and 64 parts of the real graphs, unit
                    weights

Real graphs are left out if they are missing.
"""

import random

import harness
from harness import DATA, MIB, PEERS, REAL

ROUNDS = 3
THREADS, KEY = 2, "bench"
BOTH, UNIT, PRESAMPLED = ("unit", "presampled"), ("unit",), ("presampled",)


def real(path, *options, weights=UNIT):
    return (weights, "convert", REAL / path, "--symmetrise", *options)


def generated(kind, vertices, edges, weights):
    few = ("--feature-dim", 4) if kind == "community" else ()
    return (weights, "generate", kind, "--vertices", vertices, "--edges", edges, *few)


SMALL = {
    "ogbn-arxiv": real("ogbn_arxiv", weights=BOTH),
    "com-dblp": real("com-dblp/dblp.csv.gz", "--random-split", "0.1,0.05,0.05", weights=BOTH),
    "soc-Slashdot0902": real("soc-Slashdot0902/soc-Slashdot0902.txt.gz"),
    "cnr-2000": real("bv-cnr-2000-java"),
    "flickr": real("flickr_graphsaint"),
    "amazon-computers": real("ogb-binary-amazon-computers"),
    "wiki-Vote": real("wiki-Vote/wiki-Vote.txt"),
    "p2p-Gnutella31": real("p2p-Gnutella31/p2p-Gnutella31.txt"),
    "tolokers": real("ogb-layout-tolokers"),
    "facebook_combined": real("facebook_combined/facebook_combined.txt.gz"),
    "4elt": real("metis-graphs/4elt.graph"),
    "wing": real("metis-graphs/wing.graph"),
    "email-Eu-core": real("email-Eu-core/email-Eu-core.txt"),
}
LARGE = {
    "community-15M": generated("community", 1_000_000, 15_000_000, BOTH),
    # Unit weights leave an R-MAT graph no good cut.
    "rmat-16M": generated("rmat", 1 << 20, 16_000_000, PRESAMPLED),
    "community-100M": generated("community", 4_000_000, 100_000_000, UNIT),
}
MANY, THIN = (4, 64, 256, 1024, 4096, 16384), (8, 256, 1000)
SHAPES = {"grid": MANY, "roads": MANY, "path": THIN, "tree": THIN}
GRAPHS = {**SMALL, **LARGE, **dict.fromkeys(SHAPES)}
PARTS = ("graphs", "many", "high")
PRESETS = {"graphs": ("default",), "many": ("default", "largek"), "high": ()}
CONTENDERS = {
    "graphs": ("gsplit", "gsplit high", "METIS", "KaMinPar"),
    "many": ("gsplit", "METIS", "KaMinPar"),
    "high": ("gsplit high", "Mt-KaHyPar"),
}


def shape(name):
    """The file of a thin graph in METIS's format, its vertices in random order."""

    def lattice(side, kept, draw):
        for v in range(side * side):
            if v % side and draw.random() < kept:
                yield v - 1, v
            if v >= side and draw.random() < kept:
                yield v - side, v

    draw = random.Random(2)
    vertices, pairs = {
        "grid": (400 * 400, lattice(400, 1, draw)),
        "roads": (500 * 500, lattice(500, 0.7, draw)),
        "path": (150_001, ((v - 1, v) for v in range(1, 150_001))),
        "tree": (150_000, ((draw.randrange(v), v) for v in range(1, 150_000))),
    }[name]
    file, order, rows = DATA / f"{name}.graph", list(range(vertices)), [[] for _ in range(vertices)]
    file.parent.mkdir(parents=True, exist_ok=True)
    random.Random(1).shuffle(order)
    for u, v in pairs:
        rows[order[u]].append(order[v] + 1)
        rows[order[v]].append(order[u] + 1)
    lines = [f"{vertices} {sum(map(len, rows)) // 2}", *(" ".join(map(str, row)) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
    return file


def mapped_mib(folder, weights):
    """MiB of the files that partitioning maps."""
    files = [folder / "topology" / f"{name}.npy" for name in ("indptr", "indices")]
    files += [folder / "presample" / KEY / f"{name}.npy" for name in ("edge", "work", "input")] if weights == "presampled" else []
    return sum(file.stat().st_size for file in files) / MIB


def contender(python, folder, weights, parts, presets):
    """A function that runs a contender with its next seed."""
    seeds, file = {}, folder.with_suffix(".parhip")

    def peer(*words):
        return harness.run([python, PEERS / "partition.py", *words]).json()

    def once(name):
        seed = seeds[name] = seeds.get(name, -1) + 1
        if name in ("KaMinPar", "Mt-KaHyPar"):
            found = [peer("hypar", file, parts, seed)] if name == "Mt-KaHyPar" else [peer("partition", file, parts, seed, each) for each in presets]
            said = min(found, key=lambda each: each["cut"])
            return {"seconds": said["seconds"], "cut": said["cut"], "peak_mib": said.get("extra_bytes", 0) / MIB}
        options = {"METIS": ["--partitioner", "metis"], "gsplit high": ["--quality", "high"], "gsplit": []}[name]
        words = ["partition", folder, "--parts", parts, "--weights", weights, "--threads", THREADS, "--seed", seed]
        said = harness.gsplit(*words, "--key", KEY, "--force", "--json", *options).json()
        seconds = said["seconds"]
        if name == "METIS":
            seconds = sum(stage["seconds"] for stage in said["stages"] if stage["name"] == "metis")
        cut = said["cut"] + (said["weighted_cut"] if weights == "presampled" else 0)
        return {"seconds": seconds, "cut": cut, "peak_mib": said["peak_rss_mb"] * 1e6 / MIB - mapped_mib(folder, weights)}

    return once


def chosen(bench, part):
    """(graph, how it is made, numbers of parts) of a part of the benchmark."""
    if part == "many":
        names = {**dict.fromkeys(("ogbn-arxiv", "com-dblp"), MANY), **SHAPES}
    else:
        names = dict.fromkeys(SMALL, (4, 8, 64)) if part == "high" else dict.fromkeys([*SMALL, *({} if bench.quick else LARGE)], (4, 8))
    for name in (name for name in bench.graphs if name in names):
        weights, *make = GRAPHS[name] or (UNIT, "convert", shape(name))
        yield name, make, weights if part == "graphs" else UNIT, names[name]


def measure(bench):
    python, part = harness.environment(), bench.args.part or "graphs"
    for name, make, weightings, sizes in chosen(bench, part):
        folder = harness.dataset(f"partition-{name}", *make)
        if folder is None:
            continue
        if "presampled" in weightings:
            harness.gsplit("presample", folder, "--fanouts", "15,10,5", "--epochs", 3, "--key", KEY, "--quiet")
        for weights in weightings:
            presample = [KEY] if weights == "presampled" else []
            harness.run([python, PEERS / "partition.py", "write", folder, folder.with_suffix(".parhip"), *presample])
            table = harness.Table(
                f"{part}: {name}, {weights}", "parts", "contender", "seconds", "cut", "MiB", "first's seconds / its", "first's cut / its"
            )
            for parts in sizes:
                rounds = 1 if name in LARGE else bench.rounds
                runs = table.interleave(CONTENDERS[part], rounds, contender(python, folder, weights, parts, PRESETS[part]))
                table.runs |= {f"{parts} parts: {each}": table.runs.pop(each) for each in CONTENDERS[part]}
                first = CONTENDERS[part][0]
                for each in runs:
                    seconds, cut, peak = (runs.median(each, field) for field in ("seconds", "cut", "peak_mib"))
                    table.add(
                        parts, each, seconds, cut, peak, *(runs.median(first, field) / value for field, value in (("seconds", seconds), ("cut", cut)))
                    )
            bench.keep(table)
            folder.with_suffix(".parhip").unlink()
