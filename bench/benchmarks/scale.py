"""All steps of a graph of ogbn-papers100M's shape in 16 GiB, from raw files to a trained model.

28 GB of features in f16 are read from disk. Four ranks, which are threads, train three layers of
GraphSAGE, hidden 256, fanouts 15,10,5, split-parallel, for the mini-batches of 1024 seeds that
--trial gives.

Each step is in a memory control group if one can be made, which then includes its share of the page
cache. The peak is the largest resident set, mapped files included; bytes read and written missed
the page cache. It needs 75 GB of disk, and removes all unless KEEP=1 is set.
"""

import os
import shutil

import harness
from harness import INPUTS, MIB, WORK, BenchError

CORES = None
OPTIONS = {
    "--scale": {"type": float, "default": 1.0, "help": "portion of the vertices and edges [default: 1]"},
    "--memory": {"default": "16GiB", "help": "budget of each step [default: 16GiB]"},
    "--trial": {"type": int, "default": 100, "help": "mini-batches that are trained [default: 100]"},
    "--quality": {"default": "fast", "help": "quality of the partition [default: fast]"},
}
DISK_BYTES, GB = 75e9, 1e9
UNITS = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
FANOUTS, RANKS, BATCH = "15,10,5", 4, 1024


def in_bytes(size):
    if size[-3:] not in UNITS or not size[:-3].isdigit():
        raise BenchError(f"--memory {size}: expected a size, e.g. 16GiB or 256MiB")
    return int(size[:-3]) * UNITS[size[-3:]]


def steps(args, folder, group):
    """Yields the name, the process and the result of each step."""
    raw, dataset = folder / "raw", folder / "dataset"

    def share(sixteenths):
        """The option for a part of the budget; only training counts mapped files."""
        return ["--memory", f"{in_bytes(args.memory) * sixteenths // 16 // MIB}MiB"]

    harness.need_disk(folder, DISK_BYTES * args.scale)
    harness.say("making the raw graph")
    yield "generate", harness.run([harness.environment(), INPUTS / "papers100m.py", raw, args.scale, os.cpu_count()]), {}
    options = [raw, "--out", dataset, "--feature-dtype", "f16", *share(14), "--json"]
    child = harness.gsplit("convert", *options, group=group)
    made = child.json()
    yield "convert", child, {"vertices": made["num_vertices"], "edges": made["num_edges"]}
    shutil.rmtree(raw)
    yield "verify", harness.gsplit("verify", dataset, group=group), {}
    words = ["presample", dataset, "--fanouts", FANOUTS, "--epochs", 1, *share(14), "--quiet"]
    yield "presample", harness.gsplit(*words, group=group), {}
    words = ["partition", dataset, "--parts", RANKS, "--quality", args.quality, *share(10), "--json"]
    child = harness.gsplit(*words, group=group)
    yield "partition", child, {name: child.json()[name] for name in ("cut", "adjacent_pairs", "expected_cross_share")}
    words = ["train", dataset, "--parallelism", "split", "--ranks", RANKS, *share(15), "--hidden", 256, "--epochs", 1]
    child = harness.gsplit(*words, "--trial", args.trial, "--fanouts", FANOUTS, "--eval-every", 0, "--json", group=group)
    epoch = child.json()["summary"]["epochs"][-1]
    found = {"s a mini-batch": epoch["seconds"] / args.trial, "mini-batches of an epoch": made["splits"]["train"] / BATCH}
    found |= {"rows from disk a mini-batch": epoch["rows_from_disk"] / args.trial, "MB from disk": epoch["bytes_from_disk"] / args.trial / 1e6}
    yield "train", child, found


def measure(bench):
    args, folder = bench.args, WORK / "scale"
    table = harness.Table(
        f"papers100M's shape x {args.scale:g}", "step", "seconds", "CPU s", "others' CPUs", "peak MiB", "GB read", "GB written", "result"
    )
    shutil.rmtree(folder, ignore_errors=True)
    with harness.memory_limit(in_bytes(args.memory)) as group:
        table.notes.append(f"In a control group of {args.memory}." if group else "No control group could be made.")
        try:
            for name, child, found in steps(args, folder, group):
                io = [child.io[field] / GB for field in ("read_bytes", "write_bytes")]
                result = ", ".join(f"{key} {harness.format_cell(value)}" for key, value in found.items())
                table.add(name, child.seconds, child.cpu_seconds, child.others_cpus, child.peak_bytes / MIB, *io, result)
                harness.say(f"{name}: {child.seconds:.0f} s")
            bench.keep(table)
        finally:
            if os.environ.get("KEEP") != "1":
                shutil.rmtree(folder, ignore_errors=True)
