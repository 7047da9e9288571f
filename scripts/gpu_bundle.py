#!/usr/bin/env python3
"""Put all that wants a GPU into one folder: built where there is none, run where there is one by its run.sh.

`make gpu-bundle` runs this. The folder needs nothing at its destination but NVIDIA's driver and a Python with PyTorch of the
pinned version, whose libraries it borrows.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = ROOT / "target" / "gpu-bundle"
RUN = """\
#!/usr/bin/env bash
# Says what this machine has, passes the tests on GPU 0, measures it. Results: $OUT [results], one file each, and what
# failed. PYTHON: the Python that has PyTorch [python3].
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/results}
mkdir -p "$out"
torch=$("${PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(torch.__file__))') || exit 1
export LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "$torch"/../nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=()
step() { # name, command...
    local name=$1 status=0
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=$?
    [ $status = 0 ] || failed+=("$name ($status)")
    printf '== %s: exit status %d\\n' "$name" $status
    tail -n 15 "$out/$name.txt"
}
step doctor "$here/gsplit" doctor
export GSPLIT_TEST_GPU=1 RUST_TEST_THREADS=1
step kernels "$here/tests-kernels" cuda device gpu
step trainer "$here/tests-trainer" device gpu
unset GSPLIT_TEST_GPU
step bench "$here/bench"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\\n' "${failed[*]}"
    exit 1
fi
"""


def build(*words):
    """{name of the target: its executable} of one cargo command."""
    command = ["cargo", *words, "--message-format=json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if output.returncode:
        sys.exit("error: " + " ".join(["cargo", *words]) + " failed: see above")
    messages = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def main():
    tests = build("test", "--no-run", "--lib", "-p", "gsplit-kernels", "-p", "gsplit-trainer")
    bench = build("build", "--release", "-p", "gsplit-kernels", "--example", "gpu")
    binaries = build("build", "--release")
    found = {
        "tests-kernels": tests["gsplit_kernels"],
        "tests-trainer": tests["gsplit_trainer"],
        "bench": bench["gpu"],
        "gsplit": binaries["gsplit"],
        "gsplit-train": binaries["gsplit-train"],
    }
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.mkdir(parents=True)
    for name, path in found.items():
        subprocess.run(["strip", "-o", BUNDLE / name, path], check=True)
    run = BUNDLE / "run.sh"
    run.write_text(RUN)
    run.chmod(0o755)
    size = sum(path.stat().st_size for path in BUNDLE.iterdir())
    print(f"{BUNDLE.relative_to(ROOT)}: {size / 1e6:.0f} MB; run its run.sh on a machine with a GPU")


if __name__ == "__main__":
    main()
