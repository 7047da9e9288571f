#!/usr/bin/env python3
"""Converts a graph of ogbn-papers100M's shape within a memory budget, and verifies what was made.

Reports seconds, peak resident memory, and bytes read and written, next to what `--plan` foretold. "GB read" and
"written" went through system calls (what is mapped does not count), "from" and "to disk" missed the page cache. Needs
45 GB of disk; everything is removed at the end, unless KEEP=1 is set. Ends with one JSON line, whose ratio is the
budget over the peak.
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

DISK_BYTES = 45e9
UNITS = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
GB = 1e9


def in_bytes(size):
    if size[-3:] not in UNITS or not size[:-3].isdigit():
        raise argparse.ArgumentTypeError(f"{size}: expected a size as 8GiB or 256MiB")
    return int(size[:-3]) * UNITS[size[-3:]]


def describe(name, child):
    row = [name, f"{child.seconds:.1f}", f"{child.cpu_seconds:.1f}", f"{child.others_cpus:.2f}"]
    row.append(f"{child.peak_bytes / MIB:.0f}")
    row += [f"{child.io[field] / GB:.2f}" for field in ("rchar", "wchar", "read_bytes", "write_bytes")]
    print("|", " | ".join(row), "|", flush=True)


def bench(args, folder):
    raw, dataset = folder / "raw", folder / "dataset"
    gsplit, python = measure.binary(), measure.environment()
    measure.need_disk(folder, DISK_BYTES * args.scale)
    print("making the raw graph", file=sys.stderr, flush=True)
    made = measure.run([python, HERE / "graph.py", raw, args.scale, os.cpu_count()])
    options = [raw, "--out", dataset, "--memory", args.memory, "--feature-dtype", "f16"]
    plan = json.loads(measure.run([gsplit, "convert", *options, "--plan", "--json"]).output)
    convert = measure.run([gsplit, "convert", *options, "--json"])
    verify = measure.run([gsplit, "verify", dataset])

    said = json.loads(convert.output)
    print(f"\n{said['num_vertices']:,} vertices, {said['num_edges']:,} edges of {said['facts']['edges_read']:,} read")
    print(f"raw {measure.size_of(raw) / GB:.2f} GB, dataset {measure.size_of(dataset) / GB:.2f} GB")
    print(
        f"plan: {plan['seconds']:.0f} s, {plan['memory'] / MIB:.0f} MiB of memory, {plan['disk'] / GB:.2f} GB of disk\n"
    )
    print("| step | seconds | CPU s | others' CPUs | peak MiB | GB read | GB written | from disk | to disk |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    describe("generate", made)
    describe("convert", convert)
    describe("verify", verify)
    ratio, graph = in_bytes(args.memory) / convert.peak_bytes, f"papers100M-like x {args.scale:g}"
    print("\n" + json.dumps({"bench": "scale", "ratio": round(ratio, 3), "peer": "memory budget", "graph": graph}))


def main():
    parser = argparse.ArgumentParser(description="Convert a graph of papers100M's shape within a memory budget.")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the vertices and edges [default: 1]")
    parser.add_argument("--memory", default="8GiB", help="budget of the conversion [default: 8GiB]")
    args = parser.parse_args()
    folder = WORK / "scale"
    try:
        in_bytes(args.memory)
        with measure.alone():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                bench(args, folder)
            finally:
                if os.environ.get("KEEP") != "1":
                    shutil.rmtree(folder, ignore_errors=True)
    except (BenchError, argparse.ArgumentTypeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
