#!/usr/bin/env python3
"""Kills every command at random moments, and flips random bits of every artifact: run.py GSPLIT (`make test-faults`).

Killed, at random moments and at each call that changes names in folders: nothing that was there has changed; what the command makes is
absent or whole; the same command, given again, succeeds and makes what it makes undisturbed, and another user's is refused. A conversion
keeps to the memory of its control group. Flipped: `gsplit verify` names the file, and a command that opens it fails or says what it says of
the sound one. Prints what it tried and what was lost, one line a command and an artifact; ends with 1 where anything was.

Options: --kills N (200), --flips N (1000), --seed N (of the clock; it is printed, and repeats the choice of moments and bits).
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# What a command makes, and the command. {} is a folder with `base` (a dataset with counts, maps, a placement), `edges.txt`
# and `model`, a finished training run.
COMMANDS = {
    "generate": ("made", "generate community --vertices 20000 --edges 160000 --feature-dim 32 --out made"),
    "convert": ("made", "convert edges.txt --features random:16 --random-split 0.5,0.2,0.3 --out made"),
    "presample": ("base/presample/made", "presample base --fanouts 5,5 --epochs 4 --batch-size 512 --key made"),
    "partition": ("base/partition/made", "partition base --parts 4 --presample k --key made"),
    "place": ("base/placement/made", "place base --partition p --presample k --cache 10% --key made"),
    "shard": ("made", "shard base --partition p --out made"),
    "export": ("made", "export base --format pyg --out made"),
    "train": ("made", "train base --parallelism split --ranks 2 --partition p --layers 2 --fanouts 5,5 --hidden 32 --batch-size 512"
              " --epochs 4 --checkpoint made --resume"),
    "infer": ("made.npy", "infer base --checkpoint model --out made.npy --embeddings vectors.npy"),
    "evaluate": ("made.svg", "evaluate base --partition p --fanouts 5,5 --batch-size 512 --batches 40 --svg made.svg"),
}  # fmt: skip
FILES = ("infer", "evaluate")
TOGETHER = ("infer", "shard")
SIDE = {"infer": ["vectors.npy", "made.ids.npy", "vectors.ids.npy"]}


class Lost(Exception):
    """What a fault cost."""


class Gsplit:
    def __init__(self, binary):
        self.binary = str(Path(binary).resolve())

    def start(self, folder, command, under=(), user=None):
        arguments = [*under, self.binary, *command.split(), "--quiet"]
        return subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user)

    def run(self, folder, command, code=0, under=(), user=None):
        """Its output. Fails unless it exits with `code`; None takes 0 and 1."""
        process = self.start(folder, command, under, user)
        out, errors = process.communicate(timeout=300)
        if process.returncode not in ((0, 1) if code is None else (code,)) or "panicked" in errors:
            raise Lost(f"`gsplit {command}` ended with {process.returncode}: {(errors or out).strip()}")
        return process.returncode, out + errors


def prepare(gsplit, folder):
    """The base of every command."""
    gsplit.run(folder, "generate community --vertices 6000 --edges 40000 --feature-dim 16 --classes 8 --out base")
    gsplit.run(folder, "presample base --fanouts 5,5 --epochs 3 --batch-size 512 --key k")
    gsplit.run(folder, "partition base --parts 2 --presample k --key p")
    gsplit.run(folder, "place base --partition p --presample k --cache 20% --key c")
    gsplit.run(folder, "train base --parallelism single --layers 2 --fanouts 5,5 --hidden 32 --epochs 1 --checkpoint model")
    numbers = random.Random(1)
    edges = ("%d %d\n" % (numbers.randrange(20_000), numbers.randrange(20_000)) for _ in range(200_000))
    (folder / "edges.txt").write_text("".join(edges))


def files(folder, name):
    """{path in `folder`: digest} of all files at `name` and below, but notes of what was found sound and locks."""
    path = folder / name
    found = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    found = [file for file in found if file.name not in (".verified", "lock")]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def made_by(folder, name):
    """{file: digest} of what the command makes."""
    found = {file: digest for path in [COMMANDS[name][0], *SIDE.get(name, [])] for file, digest in files(folder, path).items()}
    return {file: digest for file, digest in found.items() if not is_staging(file)}


def is_staging(file):
    return any(part.startswith(".") and part.endswith(".partial") for part in Path(file).parts)


def before(folder, name):
    """{file: digest} of what the command does not make; staging is gsplit's own."""
    found = {}
    for path in folder.iterdir():
        for file, digest in files(folder, path.name).items():
            if not is_staging(file) and not any(Path(file).is_relative_to(path) for path in [COMMANDS[name][0], *SIDE.get(name, [])]):
                found[file] = digest
    return found


def same(found, expected, why):
    """Fails where files are not the ones expected; None stands for any content."""
    for file in sorted(found.keys() | expected.keys()):
        if file not in found or file not in expected:
            raise Lost(f"{why}: {file} is {'gone' if file in expected else 'left over'}")
        if expected[file] not in (None, found[file]):
            raise Lost(f"{why}: {file} is another")


def undisturbed(gsplit, base, work, name):
    """How long the command takes, what it makes and where that is no function of the input (times, measured seconds) None."""
    results = []
    for _ in range(2):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        began = time.monotonic()
        gsplit.run(work, COMMANDS[name][1])
        results.append((time.monotonic() - began, made_by(work, name)))
    (first, made), (second, again) = results
    if not made or made.keys() != again.keys():
        raise Lost(f"{name} makes {sorted(made)} and then {sorted(again)}")
    return max(first, second), {file: digest if again[file] == digest else None for file, digest in made.items()}


def kill(gsplit, base, work, name, made, moment=0.0, call=None):
    """Kills the command after `moment` seconds, or at a call of CALLS: its name and which one of its thread. Returns whether it ran."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    was = before(work, name)
    under = [*STRACE, "/dev/null", "-e", "inject={}:signal=KILL:when={}".format(*call)] if call else ()
    process = gsplit.start(work, COMMANDS[name][1], under)
    if call is None:
        time.sleep(moment)
        running = process.poll() is None
        process.kill()
    process.communicate()
    running = running if call is None else process.returncode == -signal.SIGKILL
    same(before(work, name), was, "after the kill")
    left = made_by(work, name)
    # A training run is several outputs, one an epoch. Files that appear as one do so once the same command is run again.
    whole = left.keys() == made.keys()
    if left and name != "train" and (whole or name not in TOGETHER):
        same(left, made, "what the kill left")
    finished = not running and process.returncode == 0
    if not finished:
        # A whole file says nothing of its making, and is refused as any finished output.
        code, said = gsplit.run(work, COMMANDS[name][1], code=None if whole and name in FILES else 0)
        if code == 1 and "already" not in said and "exists" not in said:
            raise Lost(f"again: {said.strip()}")
    same(made_by(work, name), made, "made again")
    same(before(work, name), was, "after it was made again")
    return running


def kills(gsplit, base, work, count, rng):
    """Kills `count` times over all commands. Returns what was lost."""
    lost = []
    for number, name in enumerate(COMMANDS):
        points = count // len(COMMANDS) + (number < count % len(COMMANDS))
        seconds, made = undisturbed(gsplit, base, work, name)
        running, before_this = 0, len(lost)
        for _ in range(points):
            moment = rng.uniform(0, 1.05 * seconds)
            try:
                running += kill(gsplit, base, work, name, made, moment)
            except Lost as what:
                lost.append(f"{name} killed after {moment:.4f} s: {what}")
        calls = calls_of(gsplit, base, work, name) if shutil.which("strace") else []
        for call in calls:
            try:
                running += kill(gsplit, base, work, name, made, call=call)
            except Lost as what:
                lost.append(f"{name} killed at call {call[1]} of {call[0]}: {what}")
        times = f"{points} times and at {len(calls)} calls"
        print(f"killed   {name}: {times}, {running} while it ran, {len(lost) - before_this} lost", flush=True)
    if not shutil.which("strace"):
        print("no strace: commands were not killed at their calls of the system", flush=True)
    return lost


# The calls that change names in folders or make what was written durable: between two of them a kill leaves one state.
CALLS = "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,symlink,symlinkat,fsync,fdatasync"
STRACE = ["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-o"]


def calls_of(gsplit, base, work, name):
    """[(call, number)]: the calls of CALLS that the command makes, numbered as strace does, by call and thread."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    with tempfile.NamedTemporaryFile("r") as log:
        gsplit.run(work, COMMANDS[name][1], under=[*STRACE, log.name])
        found = Counter(tuple(line.replace("(", " ").split()[:2]) for line in log)
    most = Counter()
    for (_, call), count in found.items():
        most[call] = max(most[call], count)
    return [(call, number) for call in most if call in CALLS.split(",") for number in range(1, most[call] + 1)]


NOBODY = 65534


def of_another_user(gsplit, base, work):
    """What one user's killed run left is neither used nor removed by another's. Returns what was lost."""
    if os.getuid() != 0 or not shutil.which("strace"):
        print("not root, or no strace: runs of two users were not tried", flush=True)
        return []
    lost = []
    for name, first, second in [(name, *pair) for name in COMMANDS for pair in ((0, NOBODY), (NOBODY, 0))]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        for path in [work, *work.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        # Its staging folder is there once its lock is durable.
        under = [*STRACE, "/dev/null", "-e", "inject=fsync,fdatasync:signal=KILL:when=2"]
        gsplit.start(work, COMMANDS[name][1], under, first).communicate()
        partial = list(work.rglob(".*.partial"))
        left = files(work, ".")
        try:
            if not partial:
                raise Lost("nothing was left to be refused")
            code, said = gsplit.run(work, COMMANDS[name][1], code=None, user=second)
            if code == 0 or not any(words in said for words in ("of another user", "Permission denied")):
                raise Lost(f"was not refused: {said.strip()}")
            same(files(work, "."), left, "after the other user's run")
        except Lost as what:
            lost.append(f"{name} of user {first}, then of user {second}: {what}")
    print(f"users    {2 * len(COMMANDS)} commands of two users, {len(lost)} lost", flush=True)
    return lost


# A use of each artifact that opens it on any machine, beside verify: the same results or an error are expected of it.
USES = {
    "presample": "partition base --parts 2 --presample k --key fresh --force --json",
    "partition": "evaluate base --partition p --fanouts 5,5 --batch-size 512 --batches 10 --json",
    "dataset": "train base --parallelism single --layers 2 --fanouts 5,5 --hidden 8 --epochs 1 --batch-size 2048 --threads 1 --json",
    "model": "infer base --checkpoint model --out labels.npy --force --json",
}


def artifact(file):
    """The artifact that a file of `base` or `model` belongs to."""
    top, *rest = file.parts
    return top if top != "base" else rest[0] if rest[0] in ("presample", "partition", "placement") else "dataset"


MADE = ("labels.npy", "base/partition/fresh")


def leaves(value, name=""):
    """{path: value} of all that is no object and no list in `value`."""
    if not isinstance(value, (dict, list)):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {path: leaf for key, item in items for path, leaf in leaves(item, f"{name}.{key}").items()}


def answer(gsplit, work, use):
    """What a use says and makes: its exit code, and {what: value}."""
    for made in MADE:
        path = work / made
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    code, said = gsplit.run(work, use, code=None)
    if code:
        return code, {"": said}
    found = leaves(json.loads(said.splitlines()[-1]))
    for made in MADE:
        found |= files(work, made)
    return code, found


def flips(gsplit, base, work, count, rng):
    """Flips `count` bits, one at a time. Returns what was lost."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    roots = [work / name for name in ("base", "model")]
    chosen = sorted(file.relative_to(work) for root in roots for file in root.rglob("*") if file.is_file())
    chosen = [file for file in chosen if file.name not in (".verified", "lock")]
    sound = {}
    for kind, use in USES.items():
        (code, first), (_, second) = answer(gsplit, work, use), answer(gsplit, work, use)
        if code:
            raise Lost(f"`gsplit {use}` fails on sound artifacts: {first['']}")
        # Times differ, results do not.
        sound[kind] = {what: value for what, value in first.items() if second.get(what) == value}
    tried, found, lost = Counter(), Counter(), []
    for number in range(count):
        file = chosen[number % len(chosen)]
        kind, path = artifact(file), work / file
        good = path.read_bytes()
        if not good:
            continue
        at, bit = rng.randrange(len(good)), rng.randrange(8)
        bad = bytearray(good)
        bad[at] ^= 1 << bit
        path.write_bytes(bad)
        tried[kind] += 1
        where = f"{file}, byte {at}, bit {bit}"
        try:
            if file.parts[0] == "base":
                code, said = gsplit.run(work, "verify base", code=None)
                if code == 0:
                    raise Lost("verify found nothing")
                if str(file) not in said:
                    raise Lost(f"verify names another file: {said.strip()}")
            if kind in USES:
                code, results = answer(gsplit, work, USES[kind])
                found[kind] += code
                other = [what for what, value in sound[kind].items() if code == 0 and results.get(what) != value]
                if other:
                    raise Lost(f"its use gave another {other[0]}")
        except Lost as what:
            lost.append(f"{where}: {what}")
        path.write_bytes(good)
    for kind in tried:
        print(f"flipped  {kind}: {tried[kind]} bits, {found[kind]} uses refused", flush=True)
    return lost


MEMORY_GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def in_a_control_group(gsplit, base, work):
    """A conversion keeps to the memory of its control group without being told. Returns what was lost."""
    own = {kinds: path for _, kinds, path in (line.strip().split(":", 2) for line in open("/proc/self/cgroup"))}
    root = next(root for root in MEMORY_GROUPS if root.is_dir())
    group = root / own.get("memory", own.get("", "/")).lstrip("/") / f"gsplit-faults-{os.getpid()}"
    limit = "memory.max" if (root / "cgroup.controllers").exists() else "memory.limit_in_bytes"
    try:
        group.mkdir()
        (group / limit).write_text(str(400 << 20))
    except OSError as problem:
        print(f"no control group can be made ({problem}): conversion in one was not tried", flush=True)
        return []
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    numbers = random.Random(2)
    edges = "".join(f"{numbers.randrange(1 << 30)} {numbers.randrange(1 << 30)}\n" for _ in range(100_000))
    with open(work / "edges.txt", "w") as file:
        for _ in range(300):
            file.write(edges)
    lost = []
    try:
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        gsplit.run(work, "convert edges.txt --out made --keep-duplicates", under=enter)
    except Lost as what:
        lost.append(f"convert in a control group of 400 MiB: {what}")
    group.rmdir()
    print(f"group    convert of 30 million edges in 400 MiB, {len(lost)} lost", flush=True)
    return lost


def main():
    parser = argparse.ArgumentParser(description="Kill every command, flip bits of every artifact.")
    parser.add_argument("gsplit")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng, gsplit = random.Random(args.seed), Gsplit(args.gsplit)
    with tempfile.TemporaryDirectory(prefix="gsplit-faults-") as folder:
        Path(folder).chmod(0o755)
        base, work = Path(folder, "base"), Path(folder, "work")
        base.mkdir()
        try:
            prepare(gsplit, base)
            lost = kills(gsplit, base, work, args.kills, rng) + of_another_user(gsplit, base, work)
            lost += in_a_control_group(gsplit, base, work) + flips(gsplit, base, work, args.flips, rng)
        except Lost as what:
            sys.exit(f"error: {what}")
    for what in lost:
        print(f"LOST     {what}")
    print(f"{args.kills} kills, {args.flips} flips: {len(lost) or 'nothing'} lost")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
