#!/usr/bin/env python3
"""Builds and runs the tests of the workspace, and prints the time of each test program and its slowest tests.

    scripts/tests.py           the tests of `make test`: none of them may take longer than the limits below
    scripts/tests.py --all     every test in every combination (`make test-all`)

The test programs run one after the other, each in the folder of its crate as under `cargo test`, and all of them whether or not one fails.
Tests that mostly wait run beside the others of their program.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Tests share the cores with each other, so a test takes about half of this by itself. On a slow machine, a test may take this part of the
# time of all tests.
LIMIT_S = 20
LIMIT_PART = 0.05
SLOWEST = 10
# This test compiles the kernels that every test with the fake GPU loads. It runs once before the others, which then find them compiled.
FIRST = ("gsplit_trainer", "tests::fake::tensors_without_room_are_errors")
# Some tests wait for a time-out or for a process, so one test more than there are cores runs at a time. OpenMP's idle threads sleep, as
# they do in `gsplit train`.
SETTINGS = {"RUST_TEST_THREADS": str((os.cpu_count() or 1) + 1), "OMP_WAIT_POLICY": "passive"}
# These tests wait for time-outs, and run in parallel with the others of their program.
WAITING = ("gsplit_trainer", "ranks::c10d")
# These write files for the fuzzers and for other tools, and test nothing.
TOOLS = ["write_the_seeds", "leave_examples_for_the_peers"]
ALL = {"GSPLIT_WATCH": "1", "GSPLIT_MUTATIONS": "500", "GSPLIT_CASES": "1000"}


def built():
    """Test programs of the workspace: their names, files and folders."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    build = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if build.returncode:
        sys.exit(build.returncode)
    messages = (json.loads(line) for line in build.stdout.splitlines() if line.startswith("{"))
    programs = [message for message in messages if message.get("executable") and message["profile"]["test"]]
    # A fault in a crate shows before the suite that runs all of them.
    programs.sort(key=lambda program: program["target"]["kind"] == ["test"])
    return [(each["target"]["name"], each["executable"], Path(each["manifest_path"]).parent) for each in programs]


def start(executable, folder, words, stdout):
    """Starts a test program."""
    # Only with unstable options do test programs print the time of a test.
    environment = {"LIBTORCH": str(ROOT / "libtorch"), **SETTINGS, **os.environ, "RUSTC_BOOTSTRAP": "1"}
    command = [executable, "-Z", "unstable-options", "--report-time", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout, text=True, errors="replace")


def shown(lines):
    """Prints the lines of a test program. Returns [(seconds, test)]."""
    times = []
    for line in lines:
        print(line, end="", flush=True)
        if found := re.match(r"test (.+?) (?:- should panic )?\.\.\. .*<([0-9.]+)s>", line):
            times.append((float(found[2]), found[1]))
    return times


def run(name, executable, folder, words):
    """Runs a test program, and shows its output. Returns whether it passed, and [(seconds, test)]."""
    if name != WAITING[0]:
        with start(executable, folder, words, subprocess.PIPE) as tests:
            times = shown(tests.stdout)
        return tests.returncode == 0, times
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        beside = start(executable, folder, [WAITING[1], *words], printed)
        with start(executable, folder, ["--skip", WAITING[1], *words], subprocess.PIPE) as tests:
            times = shown(tests.stdout)
        beside.wait()
        printed.seek(0)
        return tests.returncode == beside.returncode == 0, times + shown(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every test in every combination, with no limit of time")
    options = parser.parse_args()
    words = ["--include-ignored", *(word for test in TOOLS for word in ("--skip", test))] if options.all else []
    os.environ.update(ALL if options.all else {})
    what = "all tests in every combination (14 minutes)" if options.all else "1,300 tests (6 minutes)"
    print(f"tests: compiles them (8 minutes on two cores the first time), then runs {what}", flush=True)
    begun = time.monotonic()
    programs = built()
    print(f"tests: {len(programs)} programs were compiled in {time.monotonic() - begun:.0f} s", flush=True)
    for name, executable, folder in programs:
        if name == FIRST[0]:
            subprocess.run([executable, "--exact", FIRST[1]], cwd=folder, capture_output=True)
    failed, rows, all_times = [], [], []
    for name, executable, folder in programs:
        print(f"\ntests: {name}", flush=True)
        begun = time.monotonic()
        passed, times = run(name, executable, folder, words)
        rows.append((time.monotonic() - begun, len(times), name))
        all_times += [(seconds, f"{name}: {test}") for seconds, test in times]
        failed += [] if passed else [name]
    if subprocess.run(["cargo", "test", "--workspace", "--doc", "--quiet"], cwd=ROOT).returncode:
        failed.append("the examples of the documentation")
    print("\ntests: seconds and number of tests of each program")
    for seconds, count, name in rows:
        print(f"{seconds:8.1f} {count:5}  {name}")
    print(f"{sum(row[0] for row in rows):8.1f} {sum(row[1] for row in rows):5}  in all")
    print("tests: the slowest")
    all_times.sort(reverse=True)
    for seconds, test in all_times[:SLOWEST]:
        print(f"{seconds:8.1f}  {test}")
    limit = max(LIMIT_S, LIMIT_PART * sum(row[0] for row in rows))
    slow = [test for seconds, test in all_times if seconds > limit and not options.all]
    if slow:
        print(f"error: {', '.join(slow)}: more than {limit:.0f} s: show the claim with less, or leave it to make test-all")
    if failed:
        print(f"error: tests failed in {', '.join(failed)}: see `failures:` above")
    return 1 if slow or failed else 0


if __name__ == "__main__":
    sys.exit(main())
