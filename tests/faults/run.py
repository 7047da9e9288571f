#!/usr/bin/env python3
"""Kills every command, makes its calls of the system fail, and flips bits of every artifact: run.py GSPLIT (`make test-faults`).

Killed, at random moments and at each call that changes names in folders: nothing that was there has changed; what the command makes is
absent or whole; the same command, given again, succeeds and makes what it makes undisturbed, and another user's is refused. A conversion
keeps to the memory of its control group.

Failing calls: a rename, fsync, write, mkdir, unlink, truncation or opening for writing fails (EIO, ENOSPC or EACCES), once or from there on.
The command ends with 1 and one `error:` line, or with 0 and all that it makes. Every older output is whole at its place, or replaced by a
whole new one, or kept aside and named by the error. The same command, given again, succeeds.

Flipped: `gsplit verify` names the file, and a command that opens it fails or says what it says of the sound one.

Prints what it tried and what was lost, one line per command and artifact; ends with 1 if anything was lost. Needs strace.

Options: --kills N (200), --flips N (1000), --faults N (failing calls per command: 12), --all (each call that fails, once and from there on),
--only NAME,... (commands), --seed N (of the clock; it is printed, and repeats the choice of moments, calls and bits).
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Command(NamedTuple):
    """A command, the files and folders that it makes, and the commands that make older outputs in their place."""

    line: str
    made: list
    older: list = []
    # Random moments at which it is killed as well: a share of --kills.
    is_killed: bool = True
    # Several files that appear as one.
    is_joint: bool = False
    # One output after the other: a training run has one an epoch.
    is_series: bool = False
    # Files that do not record their inputs: a complete one is refused like any finished output.
    is_anonymous: bool = False


INFER = ["made.npy", "vectors.npy", "made.ids.npy", "vectors.ids.npy"]
TRAIN = "train base --parallelism single --layers 1 --fanouts 5 --hidden 8 --batch-size 2048"
PRECIOUS = "PRECIOUS"  # in place of a command: the user's own files

# Commands in a folder with `base` (a dataset with counts, maps, a placement), `edges.txt` and `model`, a finished training run.
COMMANDS = {
    "generate": Command("generate community --vertices 20000 --edges 160000 --feature-dim 32 --out made", ["made"]),
    "convert": Command("convert edges.txt --features random:16 --random-split 0.5,0.2,0.3 --out made", ["made"]),
    "presample": Command("presample base --fanouts 5,5 --epochs 4 --batch-size 512 --key made", ["base/presample/made"]),
    "partition": Command("partition base --parts 4 --presample k --key made", ["base/partition/made"]),
    "place": Command("place base --partition p --presample k --cache 10% --key made", ["base/placement/made"]),
    "shard": Command("shard base --partition p --out made", ["made"], is_joint=True),
    "export": Command("export base --format pyg --out made", ["made"]),
    "train": Command("train base --parallelism split --ranks 2 --partition p --layers 2 --fanouts 5,5 --hidden 32 --batch-size 512"
                     " --epochs 4 --checkpoint made --resume", ["made"], is_series=True),
    "infer": Command("infer base --checkpoint model --out made.npy --embeddings vectors.npy", INFER, is_joint=True),
    "report": Command("report base --out made.html", ["made.html"]),
    "convert --force": Command("convert edges.txt --random-split 0.5,0.2,0.3 --out made --force", ["made"],
                               ["generate community --vertices 50 --edges 90 --out made"], is_killed=False),
    "presample --force": Command("presample base --fanouts 5,5 --key made --force", ["base/presample/made"],
                                 ["presample base --fanouts 3 --key made"], is_killed=False),
    "partition --force": Command("partition base --parts 4 --presample k --key made --force", ["base/partition/made"],
                                 ["partition base --parts 2 --presample k --key made"], is_killed=False),
    "shard --force": Command("shard base --partition p --out made --force", ["made"], ["shard base --columns --hosts 2 --out made"],
                             is_killed=False, is_joint=True),
    "export to a file": Command("export base --format snap --out made.txt", ["made.txt"], is_killed=False, is_anonymous=True),
    "export --force": Command("export base --format pyg --out made --force", ["made"],
                              ["generate community --vertices 50 --edges 90 --out tiny", "export tiny --format pyg --out made"],
                              is_killed=False),
    "infer --force": Command("infer base --checkpoint model --out made.npy --embeddings vectors.npy --force", INFER, [PRECIOUS],
                             is_killed=False, is_joint=True),
    "infer of a table": Command("infer base --checkpoint model --out made.parquet --force", ["made.parquet"], [PRECIOUS], is_killed=False),
    "train with a log": Command(f"{TRAIN} --epochs 2 --checkpoint made --resume --log made.jsonl",
                               ["made", "made.jsonl"], [f"{TRAIN} --epochs 3 --log made.jsonl"], is_killed=False, is_series=True),
    "run": Command("run edges.csv --nodes nodes.csv --label-column class --out made --directed -- --epochs 1", ["made"], is_killed=False, is_series=True),
}  # fmt: skip


class Lost(Exception):
    """What a fault cost."""


class Gsplit:
    def __init__(self, binary):
        self.binary = str(Path(binary).resolve())

    def start(self, folder, command, under=(), user=None):
        arguments = [*under, self.binary, "--quiet", *command.split()]
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
    ends = [(numbers.randrange(500), numbers.randrange(500)) for _ in range(3000)]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{source},{target}\n" for source, target in ends))
    rows = (f"{vertex},{numbers.random():.3f},{'ab'[vertex % 2]}\n" for vertex in range(500))
    (folder / "nodes.csv").write_text("id,x,class\n" + "".join(rows))


def files(folder, name):
    """{path in `folder`: digest} of all files at `name` and below, but notes of what was found sound and locks."""
    path = folder / name
    found = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    found = [file for file in found if file.name not in (".verified", "lock")]
    return {str(file.relative_to(folder)): digest(file) for file in found}


def digest(file):
    """The digest of a file; of a manifest without the inodes and times of its sources, which copies change, and its own checksum."""
    content = file.read_bytes()
    if file.name == "dataset.json":
        content = re.sub(rb'"stamp": \{[^}]*\},?\s*', b"", re.sub(rb'"checksum": "[^"]*"', b"", content, count=1))
    return hashlib.sha256(content).hexdigest()


def made_by(folder, name):
    """{file: digest} of what the command makes."""
    found = {file: digest for path in COMMANDS[name].made for file, digest in files(folder, path).items()}
    return {file: digest for file, digest in found.items() if not is_staging(file)}


def is_staging(file):
    return any(part.startswith(".") and part.endswith(".partial") for part in Path(file).parts)


def before(folder, name):
    """{file: digest} of what the command does not make; staging is gsplit's own."""
    found = {}
    for path in folder.iterdir():
        for file, digest in files(folder, path.name).items():
            if not is_staging(file) and not any(Path(file).is_relative_to(path) for path in COMMANDS[name].made):
                found[file] = digest
    return found


def same(found, expected, why):
    """Fails if files differ from the expected ones; None allows any content."""
    for file in sorted(found.keys() | expected.keys()):
        if file not in found or file not in expected:
            raise Lost(f"{why}: {file} is {'gone' if file in expected else 'left over'}")
        if expected[file] not in (None, found[file]):
            raise Lost(f"{why}: {file} is another")


def undisturbed(gsplit, base, work, name):
    """The command's seconds, and its files: None where they do not follow from the input (times, measured seconds)."""
    results = []
    for _ in range(2):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        began = time.monotonic()
        gsplit.run(work, COMMANDS[name].line)
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
    process = gsplit.start(work, COMMANDS[name].line, under)
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
    if left and not COMMANDS[name].is_series and (whole or not COMMANDS[name].is_joint):
        same(left, made, "what the kill left")
    finished = not running and process.returncode == 0
    if not finished:
        # A whole file says nothing of its making, and is refused as any finished output.
        code, said = gsplit.run(work, COMMANDS[name].line, code=None if whole and COMMANDS[name].is_anonymous else 0)
        if code == 1 and "already" not in said and "exists" not in said:
            raise Lost(f"again: {said.strip()}")
    same(made_by(work, name), made, "made again")
    same(before(work, name), was, "after it was made again")
    return running


def kills(gsplit, base, work, names, count, rng):
    """Kills `count` times over all commands. Returns the losses found."""
    lost = []
    names = [name for name in names if COMMANDS[name].is_killed]
    for number, name in enumerate(names):
        points = count // len(names) + (number < count % len(names))
        seconds, made = undisturbed(gsplit, base, work, name)
        running, before_this = 0, len(lost)
        for _ in range(points):
            moment = rng.uniform(0, 1.05 * seconds)
            try:
                running += kill(gsplit, base, work, name, made, moment)
            except Lost as what:
                lost.append(f"{name} killed after {moment:.4f} s: {what}")
        calls = calls_of(gsplit, base, work, name)
        for call in calls:
            try:
                running += kill(gsplit, base, work, name, made, call=call)
            except Lost as what:
                lost.append(f"{name} killed at call {call[1]} of {call[0]}: {what}")
        times = f"{points} times and at {len(calls)} calls"
        print(f"killed   {name}: {times}, {running} while it ran, {len(lost) - before_this} lost", flush=True)
    return lost


# The calls that change names in folders or make written data durable: between two of them a kill leaves one state.
CALLS = "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,symlink,symlinkat,fsync,fdatasync"
WRITES = "write,writev,pwrite64,ftruncate,fallocate"
# For kills: with --seccomp-bpf strace 6.1 makes calls fail, but delivers no signal.
STRACE = ["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-o"]


def calls_of(gsplit, base, work, name, more=""):
    """[(call, number)]: the calls of CALLS that the command makes, numbered as strace does, by call and thread, and those of `more` that
    are of files in `work`."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    numbers, found = Counter(), {}
    with tempfile.NamedTemporaryFile("r") as log:
        under = ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", f"trace={CALLS}{more}", "-o", log.name]
        gsplit.run(work, COMMANDS[name].line, under=under)
        for line in log:
            thread, call, *_ = line.replace("(", " ").split()
            numbers[thread, call] += 1
            is_own = call in CALLS.split(",") or str(work) in line.split(" = ")[0]
            # Strace has finished calls of other threads in lines of their own.
            if call.isalnum() and is_own and (call != "openat" or any(way in line for way in ("O_WRONLY", "O_RDWR", "O_CREAT"))):
                found[call, numbers[thread, call]] = True
    return sorted(found)


def fail(gsplit, base, work, name, made, fault):
    """Makes one call fail, or all from it on. Returns whether the command failed."""
    call, number, error, lasting = fault
    command = COMMANDS[name]
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    was, older = before(work, name), made_by(work, name)
    inject = f"inject={call}:error={error}:when={number}{'+' if lasting else ''}"
    under = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    process = gsplit.start(work, command.line, under)
    said = process.communicate(timeout=300)[1].strip()
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if process.returncode not in (0, 1) or "panicked" in said or "internal: " in said:
        raise Lost(f"ended with {process.returncode}: {said}")
    # A write that fails may be the one of the line itself.
    if process.returncode and len(lines) != 1 and call not in WRITES.split(","):
        raise Lost(f"{len(lines)} error lines: {said}")
    same(before(work, name), was, "after the fault")
    left = made_by(work, name)
    whole = left.keys() == made.keys() and all(made[file] in (None, left[file]) for file in left)
    if process.returncode == 0:
        same(left, made, "ended with 0")
    elif not whole and left != older:
        for file in left:
            if left[file] not in (older.get(file), made.get(file, 0)) and not (file in made and made[file] is None) and not command.is_series:
                raise Lost(f"{file} is neither the older one nor the new one")
        aside = [digest for replaced in work.rglob("replaced") for digest in files(replaced.parent, "replaced").values()]
        for file, digest in older.items():
            if left.get(file) != digest and digest not in aside and not command.is_series:
                raise Lost(f"the older {file} is gone: {said}")
        if not command.is_series and "run the same command again" not in said:
            raise Lost(f"outputs are neither as before nor new, and the error does not say so: {said}")
    code, again = gsplit.run(work, command.line, code=None)
    if code and not (whole and command.is_anonymous and ("already" in again or "exists" in again)):
        raise Lost(f"after `{said}`, again: {again.strip()}")
    same(made_by(work, name), made, "made again")
    same(before(work, name), was, "after it was made again")
    partial = [path for path in work.rglob(".*.partial")]
    if partial and code == 0:
        raise Lost(f"left over: {partial[0].relative_to(work)}")
    return process.returncode == 1


def failing_calls(gsplit, base, work, names, count, rng):
    """Makes `count` calls of each command fail, without `count` all of them, both once and from there on. Returns the losses found."""
    lost = []
    for name in names:
        ready = work.with_name("ready")
        shutil.rmtree(ready, ignore_errors=True)
        shutil.copytree(base, ready)
        for line in COMMANDS[name].older:
            if line == PRECIOUS:
                for file in COMMANDS[name].made:
                    (ready / file).write_text(f"precious {file}")
            else:
                gsplit.run(ready, line)
        try:
            _, made = undisturbed(gsplit, ready, work, name)
            calls = calls_of(gsplit, ready, work, name, f",openat,{WRITES}")
        except Lost as what:
            lost.append(f"{name}, undisturbed: {what}")
            continue
        by_call = {}
        for call, number in rng.sample(calls, len(calls)):
            by_call.setdefault(call, []).append((call, number))
        # A few of each kind.
        order = [point for some in itertools.zip_longest(*by_call.values()) for point in some if point]
        chosen = order[:count] if count else [point for point in order for _ in range(2)]
        failed, before_this = 0, len(lost)
        for at, (call, number) in enumerate(chosen):
            lasting = at % 2 == 0 if count == 0 else rng.random() < 0.6
            # Libraries are opened too.
            fault = call, number, rng.choice(["EIO", "ENOSPC", "EACCES"]), lasting and call != "openat"
            try:
                failed += fail(gsplit, ready, work, name, made, fault)
            except (Lost, subprocess.TimeoutExpired) as what:
                lost.append(f"{name}, {call} {number}{'+' if fault[3] else ''} {fault[2]}: {what}")
        tried = f"{len(chosen)} of {len(calls)} calls failed"
        print(f"faults   {name}: {tried}, {failed} ended the command, {len(lost) - before_this} lost", flush=True)
    return lost


NOBODY = 65534


def of_another_user(gsplit, base, work, names):
    """Files left by one user's killed run are neither used nor removed by another's. Returns the losses found."""
    if os.getuid() != 0:
        print("not root: runs of two users were not tried", flush=True)
        return []
    lost = []
    names = [name for name in names if COMMANDS[name].is_killed]
    for name, first, second in [(name, *pair) for name in names for pair in ((0, NOBODY), (NOBODY, 0))]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        for path in [work, *work.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        # Its staging folder is there once its lock is durable.
        under = [*STRACE, "/dev/null", "-e", "inject=fsync,fdatasync:signal=KILL:when=2"]
        gsplit.start(work, COMMANDS[name].line, under, first).communicate()
        partial = list(work.rglob(".*.partial"))
        left = files(work, ".")
        try:
            if not partial:
                raise Lost("nothing was left to be refused")
            code, said = gsplit.run(work, COMMANDS[name].line, code=None, user=second)
            if code == 0 or not any(words in said for words in ("of another user", "Permission denied")):
                raise Lost(f"was not refused: {said.strip()}")
            same(files(work, "."), left, "after the other user's run")
        except Lost as what:
            lost.append(f"{name} of user {first}, then of user {second}: {what}")
    print(f"users    {2 * len(names)} commands of two users, {len(lost)} lost", flush=True)
    return lost


# A use of each artifact that opens it on any machine, as well as verify: it must give the same results or an error.
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
    """The results of a use: its exit code, and {name: value}."""
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
    """Flips `count` bits, one at a time. Returns the losses found."""
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
    """A conversion keeps to the memory of its control group without an option. Returns the losses found."""
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
    parser = argparse.ArgumentParser(description="Kill every command, make its calls fail, flip bits of every artifact.")
    parser.add_argument("gsplit")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("error: strace is missing: install it (Debian: apt-get install strace)")
    print(f"seed {args.seed}", flush=True)
    rng, gsplit = random.Random(args.seed), Gsplit(args.gsplit)
    with tempfile.TemporaryDirectory(prefix="gsplit-faults-") as folder:
        Path(folder).chmod(0o755)
        base, work = Path(folder, "base"), Path(folder, "work")
        base.mkdir()
        try:
            prepare(gsplit, base)
            lost = failing_calls(gsplit, base, work, args.only, 0 if args.all else args.faults, rng) if args.faults else []
            if args.kills:
                lost += kills(gsplit, base, work, args.only, args.kills, rng) + of_another_user(gsplit, base, work, args.only)
                lost += in_a_control_group(gsplit, base, work)
            lost += flips(gsplit, base, work, args.flips, rng) if args.flips else []
        except Lost as what:
            sys.exit(f"error: {what}")
    for what in lost:
        print(f"LOST     {what}")
    print(f"{args.kills} kills, {args.faults} faults of each command, {args.flips} flips: {len(lost) or 'nothing'} lost")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
