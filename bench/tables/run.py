#!/usr/bin/env python3
"""How good `gsplit run` with no option but the label is on five made-up tables, beside gradient boosting.

Each of make.py's tables goes through one command. scikit-learn's HistGradientBoosting learns the same columns of the same split, alone and
with the means of the neighbours' columns. Of links the baseline is the ranking by popularity, which gsplit tells itself.

Ends with one JSON line, and exits with 1 where gsplit's score is below the better of both.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
import make  # noqa: E402
import measure  # noqa: E402
from measure import BenchError  # noqa: E402

SMALLER = {"rmse"}


def trained(folder, kind, label):
    """The scores of the test split by `gsplit run`, and the baseline of links."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = [measure.binary(), "run", folder / "edges.csv", "--out", out, "--quiet", "--json"]
    if label:
        words += ["--nodes", folder / "nodes.csv", "--label-column", label]
    else:
        words += ["--bipartite", "--", "--task", "link"]
    told = json.loads(measure.run(words).output.splitlines()[-1])
    (train,) = (step["result"]["summary"] for step in told["steps"] if step["step"] == "train")
    return out / "dataset", train


def main():
    rows, ratios = [], {}
    try:
        python = measure.environment()
        for kind in (sys.argv[1:] or make.KINDS):
            folder = measure.WORK / "tables" / kind
            label = make.make(kind, folder)
            dataset, train = trained(folder, kind, label)
            metric, ours = train["metric"], (train["best"] or train["epochs"][-1])["test"]
            if label:
                child = measure.run([python, HERE / "peer.py", dataset, folder / "nodes.csv", folder / "edges.csv"])
                peers = json.loads(child.output.splitlines()[-1])
                theirs = {name: scores[metric] for name, scores in peers.items()}
            else:
                theirs = {"popularity": train["baseline"]["test"]}
            best = min(theirs.values()) if metric in SMALLER else max(theirs.values())
            ratios[kind] = round(best / ours if metric in SMALLER else ours / best, 4)
            shown = ", ".join(f"{name} {score:.4f}" for name, score in theirs.items())
            rows.append(f"| {kind} | {metric} | {ours:.4f} | {shown} | {ratios[kind]:.3f} |")
    except BenchError as error:
        sys.exit(f"error: {error}")
    print("| table | score | gsplit run | others | ratio |\n| --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    print("\n" + json.dumps({"bench": "tables", "ratios": ratios}))
    sys.exit(int(min(ratios.values()) < 1))


if __name__ == "__main__":
    main()
