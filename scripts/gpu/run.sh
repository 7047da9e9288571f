#!/usr/bin/env bash
# Says what this machine has, passes the tests on GPU 0, measures. Part of what `make gpu-bundle` builds: it needs NVIDIA's
# driver and a Python with PyTorch of the pinned version; `sanitizer` needs a CUDA toolkit too.
#
#   run.sh [STEP...]      [doctor kernels trainer bench data train ranks table3 infer peer sanitizer]
#
# Each step's output goes to a file in $OUT [results], its last lines to the terminal; those from `train` to `peer` need `data`,
# `infer` needs `train` too. Variables:
#
#   WORK=path      the folder for the graph and the runs' logs [work]
#   PYTHON=path    the Python that has PyTorch [python3]
#   GPUS=0,0,0,0   the GPU of each of the ranks of `ranks` and `table3`; one may stand there more than once
#   VERTICES=n     vertices of the generated graph, 26 edges each [2400000, the shape of ogbn-products]
#   BATCH_SIZE=n   seeds of a mini-batch [4096]
#   LIMIT=seconds  the longest that a step may take [900]
#   DEVICE=cpu     passes `data` to `peer` without a GPU, to see that they run
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/results}
device=${DEVICE:-cuda}
gpus=${GPUS:-0,0,0,0}
ranks=$(tr ',' '\n' <<<"$gpus" | wc -l)
vertices=${VERTICES:-2400000}
work=${WORK:-$here/work}
dataset=$work/graph
batch_size=${BATCH_SIZE:-4096}
steps=(doctor kernels trainer bench data train ranks table3 infer peer sanitizer)
if [ "${1:-}" != --step ]; then
    for name in "$@"; do
        if [[ " ${steps[*]} " != *" $name "* ]]; then
            printf 'error: %s: expected steps of: %s\n' "$name" "${steps[*]}" >&2
            exit 2
        fi
    done
fi
mkdir -p "$out" "$work"
[ -e "$here/gsplit" ] || tar -xzf "$here/programs.tar.gz" -C "$here" || exit 1
if [ "$device" = cuda ]; then
    torch=$("${PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(torch.__file__))') || exit 1
    export LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "$torch"/../nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

gsplit() {
    printf '$ gsplit %s\n' "$*"
    "$here/gsplit" "$@"
}

# Options for GPUs alone.
on_gpu() { [ "$device" = cuda ] && printf '%s ' "$@"; }

with_gpu_0() { GSPLIT_TEST_GPU=1 RUST_TEST_THREADS=1 "$@"; }

doctor() { gsplit doctor; }
kernels() { with_gpu_0 "$here/tests-kernels" cuda device gpu; }
trainer() { with_gpu_0 "$here/tests-trainer" device gpu operator:: exchange:: narrow::; }
bench() { "$here/bench"; }

# A graph, counters that the GPU and the CPU must make alike, and a partition map.
data() {
    gsplit generate community --vertices "$vertices" --edges $((vertices * 26)) --feature-dim 100 --feature-dtype f16 --classes 47 \
        --random-split 0.08,0.02,0.02 --out "$dataset" || return
    local by=() what
    for what in cpu "$device"; do
        gsplit presample "$dataset" --fanouts 15,15,15 --epochs 3 --key counters --force --device "$what" || return
        by+=("$(cd "$dataset" && find . -path '*counters*' -type f -size +4k | sort | xargs cat | sha256sum)")
    done
    printf 'counters of cpu and %s: %s\n' "$device" "${by[*]}"
    [ "${by[0]}" = "${by[1]}" ] || { echo 'they differ'; return 1; }
    gsplit partition "$dataset" --parts "$ranks" --presample counters --key map
}

# Trains under name $1 for $2 epochs with the other options.
run() {
    local name=$1 epochs=$2
    shift 2
    gsplit train "$dataset" --fanouts 15,15,15 --batch-size "$batch_size" --epochs "$epochs" --hidden 256 --quiet --log "$work/runs/$name.jsonl" "$@"
}

compared() { gsplit compare "${@/#/$work/runs/}"; }

# One rank: what each choice costs or saves. Losses of f32 are the same, to the bit on one device.
train() {
    rm -rf "$work/runs"
    local single=(--parallelism single --device "$device") name names=()
    run f32 3 "${single[@]}" --prefetch 1 --checkpoint "$work/runs/checkpoint" || return
    run no-prefetch 3 "${single[@]}" --prefetch 0 || return
    run bf16 3 "${single[@]}" --dtype bf16 || return
    names=(f32 no-prefetch bf16)
    if [ "$device" = cuda ]; then
        run cached 3 "${single[@]}" --placement replicated --cache 256MiB || return
        run f16 3 "${single[@]}" --dtype f16 || return
        run hot 3 "${single[@]}" --topology hot || return
        run pinned 3 "${single[@]}" --topology pinned || return
        run host 3 "${single[@]}" --topology host || return
        run gat 3 "${single[@]}" --model gat --heads 4 || return
        run cpu 1 --parallelism single --device cpu || return
        names+=(cached f16 hot pinned host gat cpu)
    fi
    compared "${names[@]/%/.jsonl}"
}

# Several ranks, which may share a GPU: the losses of one rank, within rounding.
ranks() {
    local name several=(--ranks "$ranks" --device "$device" $(on_gpu --gpus "$gpus"))
    run one 1 --parallelism single --device "$device" || return
    run split 1 --parallelism split --partition map "${several[@]}" || return
    run data 1 --parallelism data "${several[@]}" || return
    compared one.jsonl split.jsonl data.jsonl
}

table3() {
    gsplit bench table3 "$dataset" --fanouts 15,15,15 --hidden 256 --ranks "$ranks" --device "$device" --rounds 3 $(on_gpu --gpus "$gpus")
}

infer() {
    local what
    for what in cpu "$device"; do
        time gsplit infer "$dataset" --checkpoint "$work/runs/checkpoint" --split test --device "$what" --quiet || return
    done
}

# An epoch of PyG, whose loader samples on the CPU, beside `train`'s. Its sampler is built here where it is not installed.
peer() {
    local python=${PYTHON:-python3}
    if ! "$python" -c 'import torch_sparse' 2>/dev/null; then
        FORCE_ONLY_CPU=1 "$python" -m pip install --quiet --no-index --no-deps --no-build-isolation --target "$work/site" \
            "$here"/torch_*.tar.gz || return
        export PYTHONPATH=$work/site
    fi
    gsplit export "$dataset" --format pyg --out "$work/pyg" --force || return
    "$python" "$here/peer.py" "$work/pyg" 15,15,15 "$batch_size" 256 2 "$(nproc)" "$device"
}

# NVIDIA's compute-sanitizer over the kernels' tests.
sanitizer() {
    local tool status=0
    PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
    for tool in memcheck racecheck synccheck; do
        printf '== %s\n' "$tool"
        with_gpu_0 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/tests-kernels" cuda device gpu --skip compiles ||
            status=$?
    done
    return $status
}

if [ "${1:-}" = --step ]; then
    "$2"
    exit
fi
failed=()
for name in "${@:-${steps[@]}}"; do
    status=0
    timeout "${LIMIT:-900}" "$0" --step "$name" >"$out/$name.txt" 2>&1 || status=$?
    [ $status = 0 ] || failed+=("$name")
    tail -n 25 "$out/$name.txt"
    printf '== %s: exit status %d\n' "$name" $status
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
