#!/usr/bin/env python3
"""How fast two processes exchange bytes, beside torch's own all-to-all, and an epoch of theirs beside one of two threads.

Messages of 4 MiB and of 8 bytes over loopback, by trainer/examples/alltoall.rs and by peer.cpp, which calls ProcessGroupGloo.
Then ogbn-arxiv, split over two ranks: three layers of GraphSAGE-mean, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds; as
threads of one process, as processes, and as two runs of one rank at once, which exchange nothing: half of what those take is the
least that processes could. Rounds of all contenders follow one another; of each run's two epochs the faster counts, of seconds and
CPU seconds the medians. Losses of threads and processes must be the same bits.
Ends with one JSON line: the ratios.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import BenchError  # noqa: E402

RAW, KEY = measure.ROOT.parent / "shared" / "data" / "ogbn_arxiv", "bench-processes"
BYTES, ROUNDS = 4 << 20, 3
SHAPE = ["--layers", 3, "--fanouts", "15,10,5", "--hidden", 256, "--batch-size", 1024, "--epochs", 2, "--eval-every", 0, "--json"]
SPLIT = ["--parallelism", "split", "--partition", KEY]


def dataset(gsplit):
    """ogbn-arxiv with a map for two ranks, made where it is not there."""
    if not RAW.is_dir():
        raise BenchError(f"{RAW} is not there")
    folder = measure.WORK / "data" / "processes-arxiv"
    if not (folder / "partition" / KEY).is_dir():
        measure.run([gsplit, "convert", RAW, "--symmetrise", "--features", "fastrp:128", "--out", folder, "--force", "--quiet"])
        measure.run([gsplit, "presample", folder, "--fanouts", "15,10,5", "--batch-size", 1024, "--key", KEY, "--quiet"])
        measure.run([gsplit, "partition", folder, "--parts", 2, "--presample", KEY, "--key", KEY, "--quiet"])
    return folder


def free_port():
    """A port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def together(commands):
    """Runs all (command, environment) at once. Returns the output of each, and their CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = [
        subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, env={**os.environ, **settings}, text=True)
        for command, settings in commands
    ]
    outputs = [child.communicate()[0] for child in started]
    if any(child.returncode for child in started):
        raise BenchError(f"`{' '.join(map(str, commands[0][0]))}` failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return outputs, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peer():
    """Compiles peer.cpp."""
    torch, program = measure.ROOT / "libtorch", measure.WORK / "processes-peer"
    measure.WORK.mkdir(parents=True, exist_ok=True)
    include = [measure.ROOT / "trainer/src/ranks/c10d/stub", torch / "include", torch / "include/torch/csrc/api/include"]
    link = ["-L", torch / "lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{(torch / 'lib').resolve()}"]
    measure.run(["c++", "-std=c++17", "-O2", *(f"-I{path}" for path in include), HERE / "peer.cpp", "-o", program, *link])
    return program


def exchanges(program):
    """GB/s of long messages and microseconds of short ones, of every round of one run."""
    port = free_port()
    outputs, _ = together([([program, rank, 2, port, ROUNDS, BYTES], {}) for rank in range(2)])
    return json.loads(outputs[0])


def epoch(gsplit, folder, who):
    """Seconds of an epoch, CPU seconds of the run, and its losses."""
    train = [gsplit, "train", folder, *SHAPE]
    if who == "threads":
        commands = [([*train, *SPLIT, "--ranks", 2, "--threads", 2], {})]
    elif who == "processes":
        port = str(free_port() - 1)  # the store is one above
        places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        commands = [([*train, *SPLIT, "--threads", 1], {**meet, **place}) for place in places]
    else:
        commands = [([*train, "--parallelism", "single", "--threads", 1], {})] * 2
    outputs, cpu = together(commands)
    runs = [json.loads(output.splitlines()[-1])["summary"]["epochs"] for output in outputs if output.strip()]
    seconds = max(min(one["seconds"] for one in run) for run in runs)
    halves = 2 if who == "floor" else 1
    return seconds / halves, cpu / halves, [one["loss"] for one in runs[0]]


def main():
    parser = argparse.ArgumentParser(description="Compare the time of two processes with torch's all-to-all and with two threads.")
    parser.add_argument("--quick", action="store_true", help="one round")
    args = parser.parse_args()
    rounds = 1 if args.quick else ROUNDS
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    try:
        gsplit, programs = measure.binary(), {"gsplit": measure.binary().parent / "examples" / "alltoall", "torch": peer()}
        with measure.alone():
            told = {name: [] for name in programs}
            for _ in range(rounds):
                for name, program in programs.items():
                    told[name].append(exchanges(program))
            print("| all-to-all | GB/s, 4 MiB | µs, 8 bytes |\n| --- | ---: | ---: |")
            middle = {name: [statistics.median(sum((run[of] for run in runs), [])) for of in ("long_gb_s", "short_us")] for name, runs in told.items()}
            for name, (long, short) in middle.items():
                print(f"| {name} | {long:.2f} | {short:.0f} |", flush=True)
            found = {"long": round(middle["gsplit"][0] / middle["torch"][0], 2), "short": round(middle["gsplit"][1] / middle["torch"][1], 2)}
            folder = dataset(gsplit)
            runs = {who: [] for who in ("threads", "processes", "floor")}
            for _ in range(rounds):
                for who, epochs in runs.items():
                    epochs.append(epoch(gsplit, folder, who))
    except BenchError as error:
        sys.exit(f"error: {error}")
    losses = [losses for who in ("threads", "processes") for _, _, losses in runs[who]]
    if any(one != losses[0] for one in losses):
        sys.exit(f"error: losses differ: {losses}")
    print("\n| epoch | seconds | / threads | CPU seconds of the run | / threads |\n| --- | ---: | ---: | ---: | ---: |")
    middle = {who: [statistics.median(run[of] for run in epochs) for of in (0, 1)] for who, epochs in runs.items()}
    for who, (seconds, cpu) in middle.items():
        ratios = [seconds / middle["threads"][0], cpu / middle["threads"][1]]
        print(f"| {who} | {seconds:.2f} | {ratios[0]:.2f} | {cpu:.1f} | {ratios[1]:.2f} |")
        found |= {f"{who} / threads": round(ratios[0], 2)} if who != "threads" else {}
    print("\n" + json.dumps({"bench": "processes", **found}))


if __name__ == "__main__":
    main()
