#!/usr/bin/env python3
"""Runs a benchmark: run.py NAME [OPTIONS], or `make bench NAME=... ARGS='OPTIONS'`.

A benchmark is a file of bench/benchmarks/, whose documentation `run.py NAME --help` prints. It has
`measure(bench)`, and may have GRAPHS and PARTS (names that --graph and --part choose from), ROUNDS,
OPTIONS (further options), CORES (used at most) and EXAMPLES (Cargo examples to build). Tables are
printed, and written to bench/results/NAME.json with the raw runs, the command, the machine and the
date; with --quick to target/bench/results/. GSPLIT=path measures a gsplit that is there;
DATA=folder has the real graphs [../shared/data].
"""

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from types import SimpleNamespace

import harness
from harness import BENCH, ROOT, WORK, BenchError

NAMES = sorted(path.stem for path in (BENCH / "benchmarks").glob("*.py"))


def load(name):
    """The file of a benchmark as a module; its own name may be that of a package."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCH / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def usage():
    lines = (f"  {name:10} {load(name).__doc__.splitlines()[0]}" for name in NAMES)
    return f"{__doc__}\nBenchmarks:\n" + "\n".join(lines)


def arguments(name, module, words):
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"run.py {name}", description=module.__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="one round: whether all of it runs")
    parser.add_argument("--rounds", type=int, default=getattr(module, "ROUNDS", 1), metavar="N", help="[default: %(default)s]")
    for option, names, many in (("--graph", getattr(module, "GRAPHS", {}), True), ("--part", getattr(module, "PARTS", ()), False)):
        if names:
            action = "append" if many else "store"
            parser.add_argument(option, action=action, choices=list(names), help="only this one" + "; may be repeated" * many)
    for option, settings in getattr(module, "OPTIONS", {}).items():
        parser.add_argument(option, **settings)
    return parser.parse_args(words)


def main():
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        return print(usage())
    if name not in NAMES:
        sys.exit(f"error: {name}: expected one of {', '.join(NAMES)}")
    module = load(name)
    args = arguments(name, module, words)
    cores = getattr(module, "CORES", 2)
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    chosen = [f" ARGS={shlex.quote(shlex.join(words))}"] if words else []
    folder = WORK / "results" if args.quick else BENCH / "results"
    results = harness.Results(name, "".join([f"make bench NAME={name}", *chosen]), folder)
    rounds = 1 if args.quick else args.rounds
    graphs = [graph for graph in getattr(module, "GRAPHS", {}) if not args.graph or graph in args.graph]
    bench = SimpleNamespace(args=args, quick=args.quick, rounds=rounds, graphs=graphs, keep=results.keep, load=load)
    try:
        harness.binary()
        for package, example in getattr(module, "EXAMPLES", ()):
            build = ["cargo", "build", "--release", "--package", package, "--example", example]
            if subprocess.run(build, cwd=ROOT).returncode != 0:
                raise BenchError(f"`{shlex.join(build)}` failed")
        with harness.alone():
            module.measure(bench)
    except BenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
