#!/usr/bin/env bash
# A PyTorch model split by gsplit.torch on a GPU, and on the CPU: the losses of python/examples/split.py on one graph are compared.
# Needs a Python that has PyTorch 2.11 for CUDA, and the package; no Rust.
#
#   torch.sh PACKAGE    the wheel of `make wheel`, such as target/wheel/gsplit-*.whl, or a folder that has gsplit with its native module; then
#                       GSPLIT names the program
#
# Runs: one process on the CPU, one on GPU 0, two that share GPU 0 (over Gloo, since NCCL refuses that), without
# and with a cache of feature rows there, one that samples on the GPU, and with two GPUs or more two over
# NCCL. Each prints its epochs. It ends with `ok`, or with the first run whose losses are others by more than 1 in 1,000. Variables:
#
#   PYTHON=path    the Python that has PyTorch [python3]
#   WORK=path      the folder for the package, the graph and the outputs [torch-work]
#   VERTICES=n     vertices of the generated graph [200000]
#   DEVICE=cpu     tries the script without a GPU: all runs are on the CPU
set -euo pipefail
package=$(realpath "${1:?name the wheel, such as target/wheel/gsplit-*.whl}")
here=$(realpath "$(dirname "$0")")
script=$here/split.py
[ -e "$script" ] || script=$here/../../python/examples/split.py
work=$(realpath -m "${WORK:-torch-work}") device=${DEVICE:-cuda} vertices=${VERTICES:-200000}
mkdir -p "$work"
python=${PYTHON:-python3}
if [ -d "$package" ]; then
    export PYTHONPATH=$package
else
    install=("$python" -m pip install --quiet --disable-pip-version-check --upgrade --target "$work/site")
    "${install[@]}" --no-deps "$package"
    "$python" -c 'import numpy, pyarrow' 2>/dev/null || "${install[@]}" numpy pyarrow
    export PYTHONPATH=$work/site
fi
cd "$work"
gsplit=${GSPLIT:-site/bin/gsplit}
[ -d graph ] || "$gsplit" generate community --vertices "$vertices" --edges $((vertices * 10)) --out graph --quiet
[ -d graph/partition ] || "$gsplit" partition graph --parts 2 --weights degree --quiet

# losses NAME RANKS OPTION...: runs the example, and keeps the loss of each epoch in NAME.losses.
losses() {
    local name=$1 ranks=$2
    shift 2
    echo "== $name"
    "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$script" graph --fanouts 10,10 "$@" | tee "$name.out"
    sed -n 's/^epoch \([0-9]*\): loss \([0-9.]*\),.*/\1 \2/p' "$name.out" >"$name.losses"
}

# agree NAME: compares the losses with the CPU's.
agree() {
    paste cpu.losses "$1.losses" | awk -v name="$1" '
        { off = ($2 - $4) / $2; if (off < 0) off = -off; if (NF != 4 || off > 0.001) bad = 1 }
        END { if (bad || NR == 0) { print name ": other losses than on the CPU"; exit 1 } }'
}

losses cpu 1 --device cpu
losses one 1 --device "$device" && agree one
losses shared 2 --device "$device" --backend gloo && agree shared
losses cached 2 --device "$device" --backend gloo --cache 20% && agree cached
if [ "$device" = cuda ]; then
    losses sampled 1 --device cuda --topology device && agree sampled
fi
if [ "$device" = cuda ] && [ "$("$python" -c 'import torch; print(torch.cuda.device_count())')" -gt 1 ]; then
    losses two 2 --device cuda && agree two
fi
echo ok
