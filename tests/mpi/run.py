#!/usr/bin/env python3
"""Ranks that are processes train as ranks that are threads do, to the bit, and nobody hangs when one of them fails.

`run.py GSPLIT` wants a gsplit that was built with --features mpi, and mpirun. `make test-mpi` has both.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GSPLIT = Path(sys.argv[1]).absolute()
SECONDS = 300
ROOT_TOO = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container
TRAIN = ["train", "ds", "--hidden", "16", "--layers", "2", "--fanouts", "5,3", "--batch-size", "200", "--threads", "4"]


def run(folder, *words):
    environment = {**os.environ, **ROOT_TOO}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)


def mpirun(folder, processes, *words):
    return run(folder, "mpirun", "--oversubscribe", "-n", str(processes), *words)


def losses(outcome):
    """Everything of a run's epochs that is the same on every machine."""
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert len(lines) == 1, f"one rank speaks for all: {lines}"
    epochs = json.loads(lines[0])["summary"]["epochs"]
    fields = ("epoch", "loss", "train", "valid", "test", "edges", "rows_loaded", "rows_exchanged")
    return [[epoch[field] for field in fields] for epoch in epochs]


def prepare(folder):
    steps = (
        ["generate", "community", "--vertices", "2000", "--edges", "12000", "--out", "ds"],
        ["presample", "ds", "--fanouts", "5,3", "--batch-size", "200", "--epochs", "2"],
        ["partition", "ds", "--parts", "4"],
        ["partition", "ds", "--parts", "3"],
        ["partition", "ds", "--parts", "2"],
    )
    for words in steps:
        outcome = run(folder, GSPLIT, *words)
        assert outcome.returncode == 0, outcome.stderr


def same_as_threads(folder):
    cases = (
        (4, []),
        (3, ["--model", "gat", "--heads", "2", "--prefetch", "0"]),
        (4, ["--groups", "2", "--model", "gcn", "--norm", "batch"]),
        (6, ["--groups", "3", "--task", "link", "--valid-edges", "0.05", "--test-edges", "0.05"]),
        (3, ["--parallelism", "data", "--model", "gcn", "--norm", "batch"]),
        (2, ["--parallelism", "data", "--task", "link", "--valid-edges", "0.05", "--test-edges", "0.05"]),
    )
    for processes, options in cases:
        train = [*TRAIN, *options, "--epochs", "2", "--json"]
        threads = losses(run(folder, GSPLIT, *train, "--ranks", str(processes)))
        # Their threads are the threads of a rank.
        train[train.index("--threads") + 1] = "1"
        found = losses(mpirun(folder, processes, GSPLIT, *train, "--mpi"))
        assert found == threads, f"{processes} processes, {options}: {found}, as threads {threads}"
        print(f"{processes} processes as {processes} threads: {' '.join(options) or 'split'}")


def groups_are_data_parallel(folder):
    """Four processes in two groups sample and load what two of data parallelism do, and learn the same."""
    train = [*TRAIN, "--epochs", "2", "--json", "--mpi"]
    found = losses(mpirun(folder, 4, GSPLIT, *train, "--groups", "2"))
    data = losses(mpirun(folder, 2, GSPLIT, *train, "--parallelism", "data"))
    for group, rank in zip(found, data, strict=True):
        assert group[5:7] == rank[5:7], f"edges and rows loaded: {group}, data {rank}"
        assert abs(group[1] - rank[1]) <= 1e-4 * rank[1], f"loss: {group}, data {rank}"
    print("2 groups of 2 processes as 2 processes of data parallelism")


def goes_on(folder):
    train = [*TRAIN, "--groups", "2", "--checkpoint", "kept", "--log", "log.jsonl", "--json", "--mpi"]
    whole = losses(mpirun(folder, 4, GSPLIT, *TRAIN, "--groups", "2", "--json", "--mpi", "--epochs", "3"))
    first = losses(mpirun(folder, 4, GSPLIT, *train, "--epochs", "1"))
    rest = losses(mpirun(folder, 4, GSPLIT, *train, "--epochs", "3", "--resume"))
    assert first + rest == whole, (first, rest, whole)
    logged = [json.loads(line)["epoch"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert logged == [1, 2, 3], logged
    print("a resumed run continues exactly")


def on_shards(folder):
    """Processes that each see the shard of their host alone train as on the whole dataset."""
    for processes, hosts, options in ((2, 2, []), (4, 4, ["--model", "gcn", "--norm", "batch"]), (4, 2, ["--preset", "intel"])):
        key = f"multilevel-presampled-k{processes}"
        alone = folder / f"alone-{processes}-{hosts}"
        cut = ["--partition", key, "--hosts", str(hosts), "--out", alone / "all"]
        outcome = run(folder, GSPLIT, "shard", "ds", *cut)
        assert outcome.returncode == 0, outcome.stderr
        for rank in range(processes):
            (alone / f"rank-{rank}").mkdir()
            (alone / f"rank-{rank}" / "ds").symlink_to(alone / f"host-{rank * hosts // processes}")
        for host in range(hosts):
            (alone / "all" / f"host-{host}").rename(alone / f"host-{host}")
        wrapped = alone / "alone.sh"
        wrapped.write_text(f'#!/bin/sh\ncd {alone}/rank-$OMPI_COMM_WORLD_RANK && exec {GSPLIT} "$@"\n')
        wrapped.chmod(0o755)
        train = [*TRAIN, *options, "--partition", key, "--epochs", "2", "--json", "--mpi"]
        whole = losses(mpirun(folder, processes, GSPLIT, *train))
        (folder / "ds").rename(folder / "hidden")
        found = losses(mpirun(folder, processes, wrapped, *train))
        (folder / "hidden").rename(folder / "ds")
        for epoch, expected in zip(found, whole, strict=True):
            near = all(abs(score - other) < 1e-6 for score, other in zip(epoch[3:5], expected[3:5]))
            assert near and epoch[:3] + epoch[5:] == expected[:3] + expected[5:], (found, whole)
        print(f"{processes} processes on the shards of {hosts} hosts: {' '.join(options) or 'split'}")
    unlike = mpirun(folder, 4, "sh", "-c", f"cd {alone}/rank-0 && exec {GSPLIT} {' '.join(train)}")
    assert unlike.returncode != 0 and "give that rank the shard of host 1" in unlike.stderr, unlike.stderr
    print("the shard of another host: ends with its reason")


def on_columns(folder):
    """Processes that each see their columns of the features alone train as on the whole dataset."""
    alone = folder / "alone-columns"
    outcome = run(folder, GSPLIT, "shard", "ds", "--columns", "--hosts", "2", "--out", alone / "all")
    assert outcome.returncode == 0, outcome.stderr
    for rank in range(2):
        (alone / f"rank-{rank}").mkdir()
        (alone / "all" / f"host-{rank}").rename(alone / f"rank-{rank}" / "ds")
    wrapped = alone / "alone.sh"
    wrapped.write_text(f'#!/bin/sh\ncd {alone}/rank-$OMPI_COMM_WORLD_RANK && exec {GSPLIT} "$@"\n')
    wrapped.chmod(0o755)
    by_columns = [*TRAIN, "--parallelism", "push-pull", "--eval-every", "0", "--epochs", "2", "--json", "--mpi"]
    whole = losses(mpirun(folder, 2, GSPLIT, *by_columns))
    (folder / "ds").rename(folder / "hidden")
    found = losses(mpirun(folder, 2, wrapped, *by_columns))
    (folder / "hidden").rename(folder / "ds")
    assert found == whole, (found, whole)
    print("2 processes, each with half the columns: push-pull")


def fails_as_one(folder):
    broken = folder / "one-fails.sh"
    broken.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 2 ] && cd /\nexec {GSPLIT} "$@"\n')
    broken.chmod(0o755)
    unlike = folder / "one-is-unlike.sh"
    unlike.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 3 ] && set -- "$@" --groups 4\nexec {GSPLIT} "$@"\n')
    unlike.chmod(0o755)
    cases = (
        ("a rank without its dataset, in groups", mpirun(folder, 4, broken, *TRAIN, "--mpi", "--groups", "2"), "ds"),
        ("groups that differ", mpirun(folder, 4, unlike, *TRAIN, "--mpi"), "start all with the same options"),
        ("groups that are not equal", mpirun(folder, 4, GSPLIT, *TRAIN, "--mpi", "--groups", "3"), "--groups 3: 4 processes"),
        ("a rank without its dataset", mpirun(folder, 4, broken, *TRAIN, "--mpi"), "ds"),
        ("fewer ranks than processes", mpirun(folder, 4, GSPLIT, *TRAIN, "--mpi", "--ranks", "3"), "4 processes were started"),
    )
    for what, outcome, words in cases:
        assert outcome.returncode != 0, f"{what}: {outcome.stdout}"
        assert words in outcome.stderr, f"{what}: {outcome.stderr}"
        print(f"{what}: ends with its reason")


def waits_no_longer(folder):
    """A rank that stops is named by the others, and the run ends."""
    stopped = folder / "one-stops.sh"
    stopped.write_text(
        f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec {GSPLIT} "$@"\n'
        f'{GSPLIT} "$@" & rank=$!\nsleep 6; kill -STOP $rank; wait $rank\n'
    )
    stopped.chmod(0o755)
    for processes, options, named in ((3, [], r"for rank 1, which"), (4, ["--groups", "2"], r"for ranks? (\d, )*1\b")):
        train = [*TRAIN, *options, "--mpi", "--epochs", "1000000", "--timeout", "3"]
        outcome = mpirun(folder, processes, stopped, *train)
        assert outcome.returncode != 0, outcome.stdout
        assert "waited 3 s in " in outcome.stderr and re.search(named, outcome.stderr), outcome.stderr
        print(f"a rank that stops: the others name it {' '.join(options)}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        same_as_threads(folder)
        groups_are_data_parallel(folder)
        goes_on(folder)
        on_shards(folder)
        on_columns(folder)
        fails_as_one(folder)
        waits_no_longer(folder)


if __name__ == "__main__":
    main()
