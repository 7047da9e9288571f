"""Time of training on features that do not fit the memory, compared with page faults and memmap.

Two layers of GraphSAGE-mean, fanouts 10,5, hidden 64, mini-batches of 1024 seeds, on a graph of
communities: 2 million vertices, 40 million edges, 256 features in f32, 2 GB. A contender is a fresh
process in a memory control group of 1 GB; its seconds are the median of the mini-batches after the
second. Contenders that read by page faults are stopped after 100 s, and left out if no control
group can be made.

"computing" has all rows in memory and no limit. The floor of `--memory SIZE` is the larger of its
seconds and of the bytes that were read by the rate of random reads that `gsplit doctor --profile`
measures in the same run. The losses of all must be equal to the bit. It needs 6 GB of disk;
numpy.memmap needs `make wheel`.
"""

import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import harness
from harness import PEERS, WORK, BenchError

ROUNDS, CORES = 3, None
FANOUTS, BATCH, BATCHES, LIMIT = "10,5", 1024, 12, 10**9
VERTICES, EDGES, WIDTH = 2_000_000, 20_000_000, 256
TRAIN = ["--parallelism", "single", "--layers", 2, "--fanouts", FANOUTS, "--batch-size", BATCH, "--hidden", 64]
SMALL, LARGE, FAULTS, MEMMAP, FLOOR = "--memory 450MiB", "--memory 900MiB", "--load-features mapped", "numpy.memmap", "computing"
SECONDS = {FAULTS: 100, MEMMAP: 100}


def prepare(folder):
    harness.need_disk(folder.parent, 6e9)
    made = ["--vertices", VERTICES, "--edges", EDGES, "--feature-dim", WIDTH]
    harness.gsplit("generate", "community", *made, "--random-split", f"{BATCH * BATCHES / VERTICES},0.001,0.001", "--out", folder, "--quiet")
    harness.gsplit("presample", folder, "--fanouts", FANOUTS, "--batch-size", BATCH, "--epochs", 1, "--quiet")
    harness.gsplit("export", folder, "--format", "pyg", "--out", folder.parent / "arrays", "--quiet")


def drop(folder):
    """Drops the files of `folder` from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def steps(who, peer, folder, group):
    """The mini-batches that a contender finished."""
    drop(folder.parent)
    if who == MEMMAP:
        words = [peer[0], PEERS / "memmap.py", folder, folder.parent / "arrays" / "x.npy", FANOUTS, BATCH]
        child = harness.run(words, group=group, at_most=SECONDS[who], PYTHONPATH=peer[1])
        return [json.loads(line) for line in child.output.splitlines()]
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        log = Path(scratch) / "log.jsonl"
        where = ["--load-features", "memory"] if who == FLOOR else who.split()
        words = [*TRAIN, "--epochs", 1, "--eval-every", 0, "--log-every", 1, "--log", log, "--quiet", *where]
        harness.gsplit("train", folder, *words, group=None if who == FLOOR else group, at_most=SECONDS.get(who))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if "step" in line and "seconds" in line]


def random_rate(folder):
    """Bytes per second of random reads of 4 KiB, with as many in flight as training has."""
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        words = ["doctor", "--profile", Path(scratch) / "here.toml", "--disk", folder, "--json"]
        return json.loads(harness.gsplit(*words).output)["disk"]["random"][-1] * 4096


def measure(bench):
    folder, peer, rates, losses = WORK / "disk" / "dataset", bench.load("torch").environments()["pyg"], [], set()

    def once(who):
        if who == FLOOR:
            rates.append(random_rate(folder.parent))
        done = steps(who, peer, folder, group)
        if who in (FLOOR, SMALL, LARGE):
            losses.add((done[0]["loss"], done[-1]["loss"]))
        after = done[2:] or done
        # A contender that finished no mini-batch took longer than it had.
        seconds = statistics.median(step["seconds"] for step in after) if after else float(SECONDS[who])
        read = statistics.median(step["bytes_from_disk"] for step in after) if who in (SMALL, LARGE) else None
        return {"seconds": seconds, "bytes_from_disk": read, "mini-batches": len(done)}

    table = harness.Table("training with features on disk", "contender", "seconds a mini-batch", "MB from disk", "floor, s", "/ floor")
    with harness.memory_limit(LIMIT) as group:
        contenders = [FLOOR, SMALL, LARGE, *([FAULTS, *([MEMMAP] if peer[0] else [])] if group else [])]
        try:
            prepare(folder)
            runs = table.interleave(contenders, bench.rounds, once)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)
    if len(losses) != 1:
        raise BenchError(f"losses differ: {losses}")
    rate = statistics.median(rates)
    table.notes.append(f"The disk: {rate / 4096:,.0f} random reads of 4 KiB per second.")
    for who in runs:
        seconds, over = runs.median(who, "seconds"), "" if runs.median(who, "mini-batches") else "over "
        row = [None, None, None]
        if who in (SMALL, LARGE):
            read = runs.median(who, "bytes_from_disk")
            floor = max(runs.median(FLOOR, "seconds"), read / rate)
            row = [read / 1e6, floor, seconds / floor]
        table.add(who, f"over {seconds:.0f}" if over else seconds, *row)
    bench.keep(table)
