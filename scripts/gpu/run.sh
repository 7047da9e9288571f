#!/usr/bin/env bash
# The first steps on a real GPU, in the order in which what fails is cheapest to find. Part of what `make gpu-bundle` builds: it needs
# NVIDIA's driver and a Python with PyTorch of the pinned version; `sanitizer` needs a CUDA toolkit too, and is left out without.
#
#   run.sh [STEP...]      all of them, in this order: doctor compile sanitizer kernels trainer bench data train places ranks table3
#                         processes types infer peer
#
# Each step says what passing looks like. Its output goes to a file in $OUT [results], its last lines to the terminal, and one line of JSON to
# $OUT/results.jsonl: step, status, seconds, and `go` or `stop`. A step that everything else rests on stops the run where it fails, the
# others do not. Steps from `train` to `peer` need `data`, `infer` needs `train` too. Variables:
#
#   WORK=path      the folder for the graph and the runs' logs [work]
#   PYTHON=path    the Python that has PyTorch [python3]
#   GPUS=0,0,0,0   the GPU of each of the ranks of `ranks` and `table3`; one may stand there more than once. Where there are as many GPUs as
#                  ranks, `processes` joins them by NCCL
#   STARTS=n       starts of each kind in `processes` [5]
#   VERTICES=n     vertices of the generated graph, 26 edges each [2400000, the shape of ogbn-products]
#   BATCH_SIZE=n   seeds of a mini-batch [4096]
#   LIMIT=seconds  the longest that a step may take [600]
#   TOTAL=seconds  steps that have not begun by then are left out [2400]
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
steps=(doctor compile sanitizer kernels trainer bench data train places ranks table3 processes types infer peer)
# Without these nothing that follows means anything.
needed=' doctor compile kernels data '
declare -A passing=(
    [doctor]='the driver, NVRTC and each GPU are found, and nothing is to do that concerns them'
    [compile]='all kernels compile for sm_75 to sm_120; two processes that start at once with an empty cache both work'
    [sanitizer]='no memory error, race or barrier that not all reach in any test of the kernels'
    [kernels]='every test passes: what the GPU computes is what the CPU computes'
    [trainer]='every test passes'
    [bench]='no measure is under its bound, and each is at most twice that'
    [data]='the counters of both devices are the same, to the bit'
    [train]='losses with and without prefetch are equal to the bit; those of f32 are those of the CPU within 1e-3'
    [places]='wherever the graph and the features lie, and whichever allocator torch has, losses are equal within 1e-5'
    [ranks]='losses of split and data are those of one rank within rounding'
    [table3]='every system trains'
    [processes]='every start ends well, cold and warm, with lazy and eager loading'
    [types]='accuracy of bf16, f16 and GAT beside f32; few mini-batches are skipped'
    [infer]='predictions of both devices have the same score'
    [peer]='PyG trains; its epoch is several times as long'
)
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

doctor() { gsplit doctor && "$here/gsplit" doctor --json >"$out/doctor.json"; }
# Everything compiled, then a cold start, two at once, and a warm one.
compile() {
    "$here/tests-kernels" --include-ignored every_kernel_compiles_for_every_architecture || return
    local cache status=0 first second
    cache=$(mktemp -d)
    export XDG_CACHE_HOME=$cache
    time gsplit doctor --quiet & first=$!
    gsplit doctor --quiet & second=$!
    wait $first || status=$?
    wait $second || status=$?
    time gsplit doctor --quiet || status=$?
    rm -rf "$cache"
    return $status
}
kernels() { with_gpu_0 "$here/tests-kernels" cuda device gpu; }
# torch asks once whether its CUDA part is there, and some test may ask before another has opened it.
trainer() { with_gpu_0 env LD_PRELOAD="${torch:+$torch/lib/libtorch_cuda.so}" "$here/tests-trainer" device gpu operator:: exchange:: narrow::; }
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

# Fails unless the losses of all named runs are the first one's within the factor $1.
same_losses() {
    "${PYTHON:-python3}" - "$@" "$work/runs" <<'END'
import json, sys

within, *names, folder = sys.argv[1:]
lines = [[json.loads(line) for line in open(f"{folder}/{name}.jsonl")] for name in names]
losses = [[line["loss"] for line in run if "epoch" in line and "loss" in line] for run in lines]
for name, found in zip(names, losses):
    pairs = list(zip(losses[0], found))
    off = max((abs(a - b) / max(abs(a), 1e-30) for a, b in pairs), default=float("inf"))
    print(f"losses of {name}: {found}, off by {off:.1e}")
    if not off <= float(within):
        sys.exit(f"losses of {name} are not those of {names[0]} within {within}")
END
}

# One rank: what each choice costs or saves.
train() {
    rm -rf "$work/runs"
    local single=(--parallelism single --device "$device") name names=()
    run f32 3 "${single[@]}" --prefetch 1 --checkpoint "$work/runs/checkpoint" || return
    run no-prefetch 3 "${single[@]}" --prefetch 0 || return
    run bf16 3 "${single[@]}" --dtype bf16 || return
    names=(f32 no-prefetch bf16)
    if [ "$device" = cuda ]; then
        run cached 3 "${single[@]}" --placement replicated --cache 256MiB || return
        run cpu 1 --parallelism single --device cpu || return
        names+=(cached cpu)
        same_losses 1e-3 f32 cpu || return
    fi
    compared "${names[@]/%/.jsonl}" && same_losses 0 f32 no-prefetch || return
    # What such a step takes at least, on the GPU that the profile names.
    GSPLIT=$here/gsplit "${PYTHON:-python3}" "$here/bound.py" "$dataset" --measured "$work/runs/f32.jsonl" --batch-size "$batch_size"
}

# Each place of the graph with each of the features, and torch's other allocator.
places() {
    local single=(--parallelism single --device "$device") topology features names=()
    for topology in $([ "$device" = cuda ] && echo device pinned) host; do
        for features in memory mapped; do
            run "$topology-$features" 1 "${single[@]}" --topology "$topology" --load-features "$features" || return
            names+=("$topology-$features")
        done
    done
    PYTORCH_ALLOC_CONF=backend:native run native-allocator 1 "${single[@]}" || return
    compared "${names[@]/%/.jsonl}" && same_losses 1e-5 "${names[@]}" native-allocator
}

# Other types of numbers, and another model.
types() {
    local single=(--parallelism single --device "$device") names=(f32-types bf16-types gat)
    run f32-types 5 "${single[@]}" || return
    run bf16-types 5 "${single[@]}" --dtype bf16 || return
    run gat 3 "${single[@]}" --model gat --heads 4 || return
    if [ "$device" = cuda ]; then
        run f16 5 "${single[@]}" --dtype f16 || return
        names+=(f16)
    fi
    compared "${names[@]/%/.jsonl}"
}

# Processes that NCCL joins, each with a GPU: the starts at which they could hang.
processes() {
    local loading cold start options=(--fanouts 15,15,15 --batch-size "$batch_size" --epochs 1 --hidden 256 --quiet --ranks "$ranks" --device cuda)
    if [ "$device" != cuda ] || [ "$(nvidia-smi --list-gpus | wc -l)" -lt "$ranks" ]; then
        echo "left out: NCCL joins no ranks that share a GPU"
        return
    fi
    for loading in EAGER LAZY; do
        for cold in yes no; do
            for ((start = 0; start < ${STARTS:-5}; start++)); do
                [ $cold = no ] || rm -rf "$work/cache"
                CUDA_MODULE_LOADING=$loading XDG_CACHE_HOME=$work/cache timeout 120 "${PYTHON:-python3}" -m torch.distributed.run --no-python \
                    --nproc-per-node "$ranks" "$here/gsplit" train "$dataset" "${options[@]}" --parallelism split --partition map --prefetch 1 ||
                    { echo "start $start failed: loading $loading, cold $cold"; return 1; }
            done
        done
    done
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
    gsplit compare "$dataset" --fanouts 15,15,15 --hidden 256 --ranks "$ranks" --device "$device" --rounds 3 $(on_gpu --gpus "$gpus")
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
    command -v compute-sanitizer >/dev/null || { echo 'left out: no compute-sanitizer'; return; }
    for tool in memcheck racecheck synccheck initcheck; do
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
: >"$out/results.jsonl"
for name in "${@:-${steps[@]}}"; do
    if [ $SECONDS -gt "${TOTAL:-2400}" ]; then
        printf '== %s: left out, the time is over\n' "$name"
        failed+=("$name")
        continue
    fi
    printf '== %s passes where %s\n' "$name" "${passing[$name]}"
    status=0 began=$SECONDS verdict=go
    timeout "${LIMIT:-600}" "$0" --step "$name" >"$out/$name.txt" 2>&1 || status=$?
    if [ $status != 0 ]; then
        failed+=("$name")
        [[ $needed != *" $name "* ]] || verdict=stop
    fi
    tail -n 25 "$out/$name.txt"
    printf '{"step": "%s", "status": %d, "seconds": %d, "verdict": "%s"}\n' "$name" $status $((SECONDS - began)) $verdict |
        tee -a "$out/results.jsonl"
    [ $verdict = go ] || break
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
