#!/usr/bin/env python3
"""The whole way of a graph of ogbn-papers100M's shape: convert, presample, partition, train an epoch, evaluate, in 16 GiB of memory.

128 features in f16, 28 GB, are read from disk. Four ranks, which are threads, train three layers of GraphSAGE-mean, hidden 256, fanouts
15,10,5, split-parallel: as many mini-batches of 1024 seeds as --trial says, from which an epoch is extrapolated. Then the valid and test
splits are scored on neighbourhoods of the same fanouts.

Where a control group can be made, each step is in one of that memory, which then holds its share of the page cache too. "peak" is the
largest resident set, mapped files included; "GB read" and "written" missed the page cache. Needs 75 GB of disk; everything is
removed at the end, unless KEEP=1 is set. Ends with one JSON line, whose ratio is the budget over the largest peak.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import MIB, WORK, BenchError  # noqa: E402

DISK_BYTES = 75e9
UNITS = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
GB = 1e9
FANOUTS, RANKS, BATCH = "15,10,5", 4, 1024


def in_bytes(size):
    if size[-3:] not in UNITS or not size[:-3].isdigit():
        raise argparse.ArgumentTypeError(f"{size}: expected a size as 16GiB or 256MiB")
    return int(size[:-3]) * UNITS[size[-3:]]


def describe(name, child):
    row = [name, f"{child.seconds:.0f}", f"{child.cpu_seconds:.0f}", f"{child.others_cpus:.2f}"]
    row.append(f"{child.peak_bytes / MIB:.0f}")
    row += [f"{child.io[field] / GB:.1f}" for field in ("read_bytes", "write_bytes")]
    print("|", " | ".join(row), "|", flush=True)
    return child.peak_bytes


def share(args, sixteenths):
    """The option for the given sixteenths of the budget; the rest is for mapped files, which only training counts."""
    return ["--memory", f"{in_bytes(args.memory) * sixteenths // 16 // MIB}MiB"]


def train(gsplit, args, dataset, group):
    """Trains some mini-batches of an epoch, and evaluates."""
    words = [gsplit, "train", dataset, "--parallelism", "split", "--ranks", RANKS, *share(args, 15), "--hidden", 256]
    words += ["--epochs", 1, "--trial", args.trial, "--eval-fanouts", FANOUTS, "--json"]
    child = measure.run(words, group=group)
    return child, json.loads(child.output.splitlines()[-1])["summary"]["epochs"][-1]


def bench(args, folder, group):
    raw, dataset = folder / "raw", folder / "dataset"
    gsplit, python = measure.binary(), measure.environment()
    measure.need_disk(folder, DISK_BYTES * args.scale)
    print("making the raw graph", file=sys.stderr, flush=True)
    made = measure.run([python, HERE / "graph.py", raw, args.scale, os.cpu_count()])
    options = [raw, "--out", dataset, "--feature-dtype", "f16", *share(args, 14)]
    plan = json.loads(measure.run([gsplit, "convert", *options, "--plan", "--json"]).output)
    convert = measure.run([gsplit, "convert", *options, "--json"], group=group)
    said, raw_bytes = json.loads(convert.output), measure.size_of(raw)
    shutil.rmtree(raw)

    print(f"\n{said['num_vertices']:,} vertices, {said['num_edges']:,} edges of {said['facts']['edges_read']:,} read")
    print(f"raw {raw_bytes / GB:.2f} GB, dataset {measure.size_of(dataset) / GB:.2f} GB")
    print(f"plan: {plan['seconds']:.0f} s, {plan['memory'] / MIB:.0f} MiB of memory, {plan['disk'] / GB:.2f} GB of disk\n")
    print("| step | seconds | CPU s | others' CPUs | peak MiB | GB read | GB written |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    describe("generate", made)
    peaks = [describe("convert", convert)]
    peaks.append(describe("verify", measure.run([gsplit, "verify", dataset], group=group)))
    words = [gsplit, "presample", dataset, "--fanouts", FANOUTS, "--epochs", 1, *share(args, 14), "--quiet"]
    peaks.append(describe("presample", measure.run(words, group=group)))
    words = [gsplit, "partition", dataset, "--parts", RANKS, "--quality", args.quality, *share(args, 10), "--json"]
    partition = measure.run(words, group=group)
    peaks.append(describe("partition", partition))
    child, epoch = train(gsplit, args, dataset, group)
    peaks.append(describe("train, evaluate", child))

    cut, all_batches = json.loads(partition.output), said["splits"]["train"] / BATCH
    print(f"\ncut {cut['cut']:,} of {cut['adjacent_pairs']:,} pairs, expected cross edges {100 * cut['expected_cross_share']:.1f} %")
    each = epoch["seconds"] / args.trial
    print(f"{args.trial} mini-batches of {all_batches:.0f}, {each:.2f} s each: an epoch in {each * all_batches / 60:.0f} minutes")
    kept, read = epoch["rows_kept"], epoch["rows_from_disk"]
    print(f"rows in memory {100 * kept / max(kept + read, 1):.0f} %, from disk {read / args.trial:,.0f} a mini-batch, {epoch['bytes_from_disk'] / args.trial / 1e6:.0f} MB")
    print(f"evaluation of {said['splits']['valid'] + said['splits']['test']:,} vertices: {epoch['evaluate_s']:.0f} s")
    ratio, graph = in_bytes(args.memory) / max(peaks), f"papers100M-like x {args.scale:g}"
    print("\n" + json.dumps({"bench": "scale", "ratio": round(ratio, 3), "peer": "memory budget", "graph": graph}))


def main():
    parser = argparse.ArgumentParser(description="Take a graph of papers100M's shape the whole way within a memory budget.")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the vertices and edges [default: 1]")
    parser.add_argument("--memory", default="16GiB", help="budget of each step [default: 16GiB]")
    parser.add_argument("--trial", type=int, default=100, help="mini-batches that are trained [default: 100]")
    parser.add_argument("--quality", default="fast", help="of the partition [default: fast]")
    args = parser.parse_args()
    folder = WORK / "scale"
    try:
        limit = in_bytes(args.memory)
        with measure.alone(), measure.memory_limit(limit) as group:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                bench(args, folder, group)
            finally:
                if os.environ.get("KEEP") != "1":
                    shutil.rmtree(folder, ignore_errors=True)
    except (BenchError, argparse.ArgumentTypeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
