"""Ranks that launchers start train as ranks that are threads do: check_launchers.py GSPLIT DATASET

torchrun is this interpreter's, on one host and as on two; mpirun is the system's, if it has one.
"""

import json
import os
import shutil
import socket
import subprocess
import sys

GSPLIT, DATASET = sys.argv[1:]
TRAIN = [GSPLIT, "train", DATASET, "--parallelism", "data", "--layers", "2", "--fanouts", "5,5", "--hidden", "16"]
TRAIN += ["--batch-size", "500", "--epochs", "2", "--json"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
# Like in a container.
ROOT_TOO = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SECONDS = 300


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(command):
    return subprocess.Popen(command, env={**os.environ, **ROOT_TOO}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def losses(*processes):
    """Losses that one of the processes, or of their child processes, prints."""
    outputs = [process.communicate(timeout=SECONDS) for process in processes]
    said = "".join(errors for _, errors in outputs)
    assert all(process.returncode == 0 for process in processes), said
    (line,) = "".join(output for output, _ in outputs).splitlines()
    return [epoch["loss"] for epoch in json.loads(line)["summary"]["epochs"]]


def main():
    expected = losses(start([*TRAIN, "--ranks", "2", "--threads", "2"]))
    train = [*TRAIN, "--threads", "1"]
    node = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "static"]
    node += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--node-rank"]
    cases = {
        "torchrun": [[*TORCHRUN, "--nproc-per-node", "2", "--master-port", str(free_port()), *train]],
        "torchrun, standalone": [[*TORCHRUN, "--standalone", "--nproc-per-node", "2", *train]],
        "torchrun, as on two hosts": [[*TORCHRUN, *node, rank, *train] for rank in ("0", "1")],
        "mpirun": [["mpirun", "--oversubscribe", "-n", "2", *train]],
    }
    for name, commands in cases.items():
        if not shutil.which(commands[0][0]):
            print(f"skipped {name}: it is not installed (Debian and Ubuntu: sudo apt-get install openmpi-bin)")
            continue
        found = losses(*[start(command) for command in commands])
        assert found == expected, f"{name}: {found}, as threads {expected}"
        print(f"ok      2 ranks that {name} has started: losses of 2 threads")


if __name__ == "__main__":
    main()
