#!/usr/bin/env python3
"""How fast training reads feature rows that do not fit the memory, beside page faults, numpy.memmap and the disk's own rate.

Two layers of GraphSAGE-mean, fanouts 10,5, hidden 64, mini-batches of 1024 seeds, on a graph of communities: 2 million vertices, 40 million
edges, 256 features in f32, 2 GB. Each contender is a fresh process in a memory control group of 1 GB, and has its time; the seconds of a
mini-batch are the median of those it finished after the second. Rounds of all contenders follow one another.

`computing` has all rows in memory and no limit. The floor of `--memory SIZE` is the larger of its seconds and of the bytes that were read from
disk by the rate of random reads that `gsplit doctor --profile` measures in the same run. Where no control group can be made, those that go
through page faults are left out. The losses of all must be equal to the bit.
Ends with one JSON line: the ratio of the seconds of numpy.memmap, which computes nothing, to those of gsplit with the smaller memory.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import WORK, BenchError  # noqa: E402

FANOUTS, BATCH, BATCHES, LIMIT = "10,5", 1024, 12, 10**9
VERTICES, EDGES, WIDTH = 2_000_000, 20_000_000, 256
TRAIN = ["--parallelism", "single", "--layers", 2, "--fanouts", FANOUTS, "--batch-size", BATCH, "--hidden", 64]
SMALL, LARGE, FAULTS, MEMMAP, FLOOR = "--memory 450MiB", "--memory 900MiB", "--load-features mapped", "numpy.memmap", "computing"
SECONDS = {FAULTS: 100, MEMMAP: 100}


def prepare(gsplit, folder):
    measure.need_disk(folder.parent, 6e9)
    share = f"{BATCH * BATCHES / VERTICES},0.001,0.001"
    made = ["--vertices", VERTICES, "--edges", EDGES, "--feature-dim", WIDTH, "--random-split", share]
    measure.run([gsplit, "generate", "community", *made, "--out", folder, "--quiet"])
    measure.run([gsplit, "presample", folder, "--fanouts", FANOUTS, "--batch-size", BATCH, "--epochs", 1, "--quiet"])
    measure.run([gsplit, "export", folder, "--format", "pyg", "--out", folder.parent / "arrays", "--quiet"])


def drop(folder):
    """Drops the files of `folder` from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def one(who, gsplit, peer, folder, procs):
    """The steps of a contender: seconds, and what else it says of each."""
    drop(folder.parent)
    if who == MEMMAP:
        python, path = peer
        words = [python, HERE / "peer.py", folder, folder.parent / "arrays" / "x.npy", FANOUTS, BATCH]
        child = measure.run(words, group=procs, at_most=SECONDS[who], PYTHONPATH=path)
        return [json.loads(line) for line in child.output.splitlines()]
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        log = Path(scratch) / "log.jsonl"
        where = ["--load-features", "memory"] if who == FLOOR else who.split()
        words = [gsplit, "train", folder, *TRAIN, "--epochs", 1, "--eval-every", 0, "--log-every", 1, "--log", log, "--quiet", *where]
        measure.run(words, group=None if who == FLOOR else procs, at_most=SECONDS.get(who))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if "step" in line and "seconds" in line]


def random_rate(gsplit, folder):
    """Bytes a second of random reads of 4 KiB, with as many in flight as training has."""
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        words = [gsplit, "doctor", "--profile", Path(scratch) / "here.toml", "--disk", folder, "--json"]
        return json.loads(measure.run(words).output)["disk"]["random"][-1] * 4096


def seconds(steps):
    """The median of the mini-batches after the second, or of those there are; None without any."""
    found = [step["seconds"] for step in steps]
    return statistics.median(found[2:] or found) if found else None


def compare(gsplit, peer, folder, procs, rounds):
    """{contender: [steps of a round]}, and the rates of the disk, a round each; fails where losses differ."""
    runs, rates = {}, []
    for _ in range(rounds):
        rates.append(random_rate(gsplit, folder.parent))
        for who in (FLOOR, SMALL, LARGE, *((FAULTS, MEMMAP) if procs else ())):
            if who == MEMMAP and peer is None:
                continue
            steps = one(who, gsplit, peer, folder, procs)
            runs.setdefault(who, []).append(steps)
            print(f"{who}: {len(steps)} mini-batches, {seconds(steps)} s", file=sys.stderr, flush=True)
    whole = [steps for found in runs.values() for steps in found]
    losses = {tuple(step["loss"] for step in steps[:1]) for steps in whole if steps and "loss" in steps[0]}
    last = {steps[-1]["loss"] for who in (FLOOR, SMALL, LARGE) for steps in runs[who]}
    if len(losses) != 1 or len(last) != 1:
        raise BenchError(f"losses differ: {losses} first, {last} last")
    return runs, rates


def show(runs, rates):
    """A row a contender; returns the seconds of each."""
    rate, took = statistics.median(rates), {}
    middle = {who: [found for found in map(seconds, runs_of) if found] for who, runs_of in runs.items()}
    for who, found in middle.items():
        took[who] = statistics.median(found) if found else None
    print(f"\nthe disk: {rate / 4096:,.0f} random reads of 4 KiB a second\n")
    print("| | seconds a mini-batch | MB from disk | floor, s | / floor |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for who, value in took.items():
        steps = [step for steps in runs[who] for step in steps[2:]]
        row = [who, f"over {SECONDS[who]}" if value is None else f"{value:.2f}", "", "", ""]
        if who in (SMALL, LARGE):
            read = statistics.median(step["bytes_from_disk"] for step in steps)
            floor = max(took[FLOOR], read / rate)
            row[2:] = [f"{read / 1e6:.0f}", f"{floor:.2f}", f"{value / floor:.2f}"]
        print("|", " | ".join(row), "|", flush=True)
    return took


def main():
    parser = argparse.ArgumentParser(description="Time training whose feature rows do not fit the memory.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    args = parser.parse_args()
    folder = WORK / "disk" / "dataset"
    try:
        gsplit, loader = measure.binary(), measure.script("loader/run.py")
        WORK.mkdir(parents=True, exist_ok=True)
        try:
            python, packages = loader.environments(loader.package())["pyg"]
            peer = python and (python, os.pathsep.join(map(str, packages)))
        except BenchError as error:
            peer = print(f"numpy.memmap is left out: {error}", file=sys.stderr)
        with measure.alone(), measure.memory_limit(LIMIT) as procs:
            if procs is None:
                print("cannot make a memory control group: runs that read by page faults are left out", file=sys.stderr)
            try:
                prepare(gsplit, folder)
                took = show(*compare(gsplit, peer, folder, procs, args.rounds))
            finally:
                shutil.rmtree(folder.parent, ignore_errors=True)
    except BenchError as error:
        sys.exit(f"error: {error}")
    ratios = {who: round((took[who] or SECONDS[who]) / took[SMALL], 1) for who in (FAULTS, MEMMAP) if who in took}
    print("\n" + json.dumps({"bench": "disk", "ratio": ratios.get(MEMMAP), "mapped": ratios.get(FAULTS)}))


if __name__ == "__main__":
    main()
