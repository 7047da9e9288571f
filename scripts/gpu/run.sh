#!/usr/bin/env bash
# The first steps on a real GPU, in the order in which what fails is cheapest to find. A stage is one command of at most 540 seconds, for
# machines that are lent for ten minutes at a time: it makes the graph that it needs, and packs its results into one archive.
#
#   run.sh STAGE
#
#   sources    nvcc: registers and spills of every kernel, from only the sources; needs neither a GPU nor the bundle
#   first      compile kernels: compiled cold and warm, then their tests
#   losses     data train places: counters and losses of the GPU compared with the CPU's, from each place
#   tests      dlopen trainer: torch's CUDA part as a run finds it, then the trainer's tests
#   starts     torch's two allocators, and lazy and eager loading of kernels, by the clock
#   sanitizer  NVIDIA's memcheck over the kernels that follow ids
#   pytorch    gsplit.torch compared with the CPU
#   bench      copies, gathers, sampling and pre-sampling
#   several    ranks table3 processes: several ranks, on one GPU or more
#   models     types infer peer: number types, inference, PyG
#
# A step of a stage may be named too. All but `sources` need NVIDIA's driver, the programs of `make gpu-bundle` and, from `losses` on, a Python
# with PyTorch of the pinned version; they begin with `gsplit doctor --require-gpu`, and end there where no GPU can be used. Each step says what passing looks like. $OUT/STAGE.tgz has its
# output, the logs of training, and results.jsonl with step, status, seconds, and `go` or `stop`: after a failure of a step that the rest
# needs the stage ends. Variables:
#
#   SMOKE=1        a first try: a graph of 200,000 vertices, mini-batches of 1,024 seeds, a start of each kind
#   OUT=path       the folder for the archive, of at most 16 MiB [WORK]
#   WORK=path      the folder for programs, graph and runs, outside this one [gsplit-gpu in the folder for temporary files]
#   PROGRAMS=path  the folder of gsplit, gsplit-train, tests-kernels, tests-trainer and bench [unpacked from programs.tar.gz next to this file]
#   PYTHON=path    the Python that has PyTorch [python3]
#   CUDA_HOME=path the CUDA toolkit, for `sources` and `sanitizer` [/usr/local/cuda]
#   ARCH=sm_90     what `sources` compiles for [that of GPU 0, else sm_90]
#   GPUS=0,0,0,0   the GPU of each of the ranks of `ranks` and `table3`; a GPU may be repeated. Where there are as many GPUs as
#                  ranks, `processes` joins them by NCCL
#   STARTS=n       starts of each kind in `processes` [5]
#   TOOL=name      of compute-sanitizer, for `sanitizer` [memcheck]
#   VERTICES=n     vertices of the generated graph, 26 edges each [2400000, the shape of ogbn-products]
#   BATCH_SIZE=n   seeds of a mini-batch [4096]
#   LIMIT=seconds  the longest that the stage may take [540]
#   DEVICE=cpu     passes the steps that train without a GPU, to see that they run
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${SMOKE:-}" ]; then
    export VERTICES=${VERTICES:-200000} BATCH_SIZE=${BATCH_SIZE:-1024} STARTS=${STARTS:-1}
fi
export WORK=${WORK:-${TMPDIR:-/tmp}/gsplit-gpu} DEVICE=${DEVICE:-cuda}
work=$WORK device=$DEVICE
out=${OUT:-$work}
export PROGRAMS=${PROGRAMS:-$work/programs}
python=${PYTHON:-python3}
gpus=${GPUS:-0,0,0,0}
ranks=$(tr ',' '\n' <<<"$gpus" | wc -l)
vertices=${VERTICES:-2400000}
dataset=$work/graph-$vertices
batch_size=${BATCH_SIZE:-4096}
limit=${LIMIT:-540}
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
declare -A stages=(
    [first]='compile kernels' [losses]='data train places' [tests]='dlopen trainer' [several]='ranks table3 processes'
    [models]='types infer peer'
)
# Without these nothing that follows in their stage means anything.
needed=' compile kernels data dlopen '
declare -A passing=(
    [sources]='every file compiles; a spill in a kernel that runs often is to be looked at'
    [compile]='two processes that start at once with an empty cache both work, and the next start is short'
    [kernels]='every test passes: what the GPU computes is what the CPU computes'
    [data]='the counters of both devices are the same, to the bit'
    [train]='losses with and without prefetch, and with rows on GPUs or on the host, are equal to the bit; those of f32 are those of the CPU within 1e-3'
    [places]='wherever the graph and the features lie, losses are equal within 1e-5'
    [dlopen]="libtorch_cuda.so is PyTorch's own; losses are the CPU's within 1e-3"
    [trainer]='every test passes'
    [starts]='every run ends well; the shortest tells which settings are better'
    [sanitizer]='no memory error in any test of the kernels that sample, gather, number and sum'
    [pytorch]="losses of gsplit.torch are the CPU's within 1e-3"
    [bench]='no measure is under its bound, and each is at most twice that'
    [ranks]='losses of split and data are those of one rank within rounding'
    [table3]='every system trains'
    [processes]='every start ends well, cold and warm, with lazy and eager loading'
    [types]='accuracy of bf16, f16 and GAT beside f32; few mini-batches are skipped'
    [infer]='predictions of both devices have the same score'
    [peer]='PyG trains; its epoch is several times as long'
)

gsplit() {
    printf '$ gsplit %s\n' "$*"
    "$PROGRAMS/gsplit" "$@"
}

on_gpus=()
[ "$device" != cuda ] || on_gpus=(--gpus "$gpus")

with_gpu_0() { GSPLIT_TEST_GPU=1 RUST_TEST_THREADS=1 "$@"; }

# Compiles every file with nvcc; a table of its kernels, the ones with most spills and registers last.
sources() {
    local kernels=$here/kernels arch=${ARCH:-} file name jobs=() status=0
    [ -d "$kernels" ] || kernels=$here/../../kernels/src
    command -v nvcc >/dev/null || { echo 'error: no nvcc: set CUDA_HOME to a CUDA toolkit'; return 1; }
    [ -n "$arch" ] || arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\)$/sm_\1\2/p')
    nvcc --version | tail -n 1
    mkdir -p "$work/sources"
    rm -f "$work"/sources/*
    for file in "$kernels"/*/*.cu; do
        name=${file#"$kernels"/}
        name=$work/sources/${name//\//-}
        nvcc -std=c++17 -arch="${arch:-sm_90}" -cubin -Xptxas -v -I"$kernels/cuda" -I"$kernels/sample" -I"$kernels/spmm" \
            -o "$name.cubin" "$file" >"$name" 2>&1 &
        jobs+=("$name" $!)
    done
    set -- "${jobs[@]}"
    while [ $# -gt 0 ]; do
        wait "$2" || { status=1; cat "$1"; printf 'error: nvcc failed on %s\n' "${1##*/}"; }
        shift 2
    done
    [ $status = 0 ] || return $status
    (cd "$work/sources" && awk '
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; stack = stores = loads = 0 }
        /bytes stack frame/ { stack += $1; stores += $5; loads += $9 }
        / Used [0-9]+ registers/ {
            for (i = 2; i <= NF; i++) { if ($i ~ /^registers/) used = $(i - 1); if ($i ~ /^barriers/) barriers = $(i - 1) }
            shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
            printf "%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", stores, loads, used, stack, shared, barriers, kernel, FILENAME
        }' ./*.cu) | sort -n -k1,1 -k2,2 -k3,3 >"$work/sources/registers.tsv"
    awk -F '\t' 'BEGIN { print "kernels for '"${arch:-sm_90}"':" }
        { printf "%6d %6d %9d %5d %6d %8d  %s (%s)\n", $1, $2, $3, $4, $5, $6, $7, substr($8, 3); spilling += $1 + $2 > 0; if ($3 > most) most = $3 }
        END {
            print "stores  loads registers stack shared barriers  (spills, stack and shared memory in bytes)"
            printf "%d kernels, %d spill, at most %d registers\n", NR, spilling, most
            exit NR == 0
        }' "$work/sources/registers.tsv"
}

# A cold start, two at once, and a warm one.
compile() {
    local cache status=0 first second
    cache=$(mktemp -d)
    export XDG_CACHE_HOME=$cache
    time gsplit doctor --require-gpu --quiet & first=$!
    gsplit doctor --require-gpu --quiet & second=$!
    wait $first || status=$?
    wait $second || status=$?
    time gsplit doctor --require-gpu --quiet || status=$?
    rm -rf "$cache"
    return $status
}
kernels() { with_gpu_0 "$PROGRAMS/tests-kernels" cuda device gpu; }
# torch asks once whether its CUDA part is there, and some test may ask before another has opened it.
trainer() { with_gpu_0 env LD_PRELOAD="${torch:+$torch/lib/libtorch_cuda.so}" "$PROGRAMS/tests-trainer" device gpu operator:: exchange:: narrow::; }
bench() { "$PROGRAMS/bench"; }

# The graph, where it is not there.
graph() {
    [ -d "$dataset" ] && return
    gsplit generate community --vertices "$vertices" --edges $((vertices * 26)) --feature-dim 100 --feature-dtype f16 --classes 47 \
        --random-split 0.08,0.02,0.02 --out "$dataset.new" --force && mv "$dataset.new" "$dataset"
}

presample() { gsplit presample "$dataset" --fanouts 15,15,15 --epochs 3 --key counters --force --device "$1"; }

# Its partition map, where it is not there.
map() {
    graph || return
    [ -d "$dataset/partition/map" ] && return
    presample "$device" && gsplit partition "$dataset" --parts "$ranks" --presample counters --key map
}

# Counters that the GPU and the CPU must make alike.
data() {
    local by=() what
    graph || return
    for what in cpu "$device"; do
        presample "$what" || return
        by+=("$(cd "$dataset" && find . -path '*counters*' -type f -size +4k | sort | xargs cat | sha256sum)")
    done
    printf 'counters of cpu and %s: %s\n' "$device" "${by[*]}"
    [ "${by[0]}" = "${by[1]}" ] || { echo 'they differ'; return 1; }
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
    "$python" - "$@" "$work/runs" <<'END'
import json, sys

within, *names, folder = sys.argv[1:]
lines = [[json.loads(line) for line in open(f"{folder}/{name}.jsonl")] for name in names]
losses = [[line["loss"] for line in run if "epoch" in line and "loss" in line] for run in lines]
for name, found in zip(names, losses):
    pairs = list(zip(losses[0], found))
    off = max((abs(a - b) / max(abs(a), 1e-30) for a, b in pairs), default=float("inf"))
    print(f"losses of {name}: {found}, off by {off:.1e}")
    if not off <= float(within):
        sys.exit(f"losses of {name} differ from {names[0]}'s by more than {within}")
END
}

# One rank: the cost or saving of each choice.
train() {
    local single=(--parallelism single --device "$device") names=()
    graph || return
    run f32 3 "${single[@]}" --prefetch 1 --checkpoint "$work/runs/checkpoint" || return
    run no-prefetch 3 "${single[@]}" --prefetch 0 || return
    run host 3 "${single[@]}" --placement host || return
    run bf16 3 "${single[@]}" --dtype bf16 || return
    names=(f32 no-prefetch host bf16)
    if [ "$device" = cuda ]; then
        run cached 3 "${single[@]}" --placement replicated --cache 256MiB || return
        run cpu 1 --parallelism single --device cpu || return
        names+=(cached cpu)
        same_losses 1e-3 f32 cpu || return
    fi
    compared "${names[@]/%/.jsonl}" && same_losses 0 f32 no-prefetch host || return
    # What such a step takes at least, on the GPU that the profile names.
    GSPLIT=$PROGRAMS/gsplit "$python" "$here/bound.py" "$dataset" --measured "$work/runs/f32.jsonl" --batch-size "$batch_size"
}

# Each place of the graph with each of the features, and what GPUs keep of a mapped file.
places() {
    local single=(--parallelism single --device "$device") topology features names=()
    graph || return
    run kept-of-file 1 "${single[@]}" --load-features mapped || return
    for topology in $([ "$device" = cuda ] && echo device pinned) host; do
        for features in memory mapped; do
            run "$topology-$features" 1 "${single[@]}" --topology "$topology" --placement host --load-features "$features" || return
            names+=("$topology-$features")
        done
    done
    compared kept-of-file.jsonl "${names[@]/%/.jsonl}" && same_losses 1e-5 kept-of-file "${names[@]}"
}

# The program itself, which opens torch's CUDA part when it needs it.
dlopen() {
    local opened single=(--parallelism single --trial 10)
    graph || return
    rm -f "$work"/libraries.*
    LD_DEBUG=libs LD_DEBUG_OUTPUT=$work/libraries run dlopen 1 "${single[@]}" --device "$device" || return
    opened=$(grep -h 'calling init: .*/libtorch_cuda\.so' "$work"/libraries.* | sed 's/.*calling init: //' | sort -u)
    rm -f "$work"/libraries.*
    printf 'opened: %s\n' "${opened:-no libtorch_cuda.so}"
    if [ "$device" = cuda ] && [ "$(realpath -q "$opened")" != "$(realpath "$torch/lib/libtorch_cuda.so")" ]; then
        echo "error: not that of $torch"
        return 1
    fi
    run dlopen-cpu 1 "${single[@]}" --device cpu && same_losses 1e-3 dlopen-cpu dlopen
}

# Seconds of a start and an epoch, and the most memory of GPU 0, with each allocator of torch's and each way of loading kernels.
starts() {
    local allocator loading began seconds watching
    graph || return
    run warm-up 1 --parallelism single --device "$device" --trial 1 || return
    for allocator in native cudaMallocAsync; do
        for loading in LAZY EAGER; do
            : >"$work/memory"
            while nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id=0; do sleep 0.2; done >"$work/memory" 2>/dev/null & watching=$!
            began=$(date +%s.%N)
            PYTORCH_ALLOC_CONF=backend:$allocator CUDA_MODULE_LOADING=$loading \
                run "$allocator-$loading" 2 --parallelism single --device "$device" --eval-every 0 || { kill $watching; return 1; }
            seconds=$(date +%s.%N)
            kill $watching 2>/dev/null
            "$python" - "$work/runs/$allocator-$loading.jsonl" "$began" "$seconds" "$work/memory" <<'END'
import json, sys

log, began, ended, memory = sys.argv[1:]
epochs = [line["seconds"] for line in map(json.loads, open(log)) if "epoch" in line and "seconds" in line]
used = [int(line) for line in open(memory) if line.strip().isdigit()]
whole = float(ended) - float(began)
print(f"{log.split('/')[-1][:-6]}: start and end {whole - sum(epochs):.2f} s, last epoch {epochs[-1]:.3f} s, at most {max(used, default=0)} MiB")
END
        done
    done
}

# NVIDIA's compute-sanitizer over the tests of the kernels that follow ids.
sanitizer() {
    local names
    command -v compute-sanitizer >/dev/null || { echo 'error: no compute-sanitizer: set CUDA_HOME to a CUDA toolkit'; return 1; }
    mapfile -t names < <("$PROGRAMS/tests-kernels" --list | sed -n 's/: test$//p' | grep -E '^(sample|gather|unique|spmm)::' | grep -E 'cuda|device|gpu')
    printf '%d tests by %s\n' ${#names[@]} "${TOOL:-memcheck}"
    with_gpu_0 compute-sanitizer --tool "${TOOL:-memcheck}" --error-exitcode 9 "$PROGRAMS/tests-kernels" --exact "${names[@]}"
}

# A model in PyTorch.
pytorch() {
    local package=$here/python
    if [ ! -e "$package/gsplit/_native.abi3.so" ]; then
        echo "error: no native module of the Python package next to $0: \`make gpu-bundle\` builds it"
        return 1
    fi
    if ! "$python" -c 'import sys, numpy, pyarrow, torch; sys.exit(torch.version.cuda is None)'; then
        echo "error: $python lacks PyTorch for CUDA, numpy or pyarrow: set PYTHON"
        return 1
    fi
    VERTICES=$((vertices / 10)) GSPLIT=$PROGRAMS/gsplit WORK=$work/torch "$here/torch.sh" "$package"
}

# Other types of numbers, and another model.
types() {
    local single=(--parallelism single --device "$device") names=(f32-types bf16-types gat)
    graph || return
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
    local loading cold start options=(--fanouts '15,15,15' --batch-size "$batch_size" --epochs 1 --hidden 256 --quiet --ranks "$ranks" --device cuda)
    if [ "$device" != cuda ] || [ "$(nvidia-smi --list-gpus | wc -l)" -lt "$ranks" ]; then
        echo "left out: NCCL joins no ranks that share a GPU"
        return
    fi
    map || return
    for loading in EAGER LAZY; do
        for cold in yes no; do
            for ((start = 0; start < ${STARTS:-5}; start++)); do
                [ $cold = no ] || rm -rf "$work/cache"
                CUDA_MODULE_LOADING=$loading XDG_CACHE_HOME=$work/cache timeout 120 "$python" -m torch.distributed.run --no-python \
                    --nproc-per-node "$ranks" "$PROGRAMS/gsplit" train "$dataset" "${options[@]}" --parallelism split --partition map --prefetch 1 ||
                    { echo "start $start failed: loading $loading, cold $cold"; return 1; }
            done
        done
    done
}

# Several ranks, which may share a GPU: the losses of one rank, within rounding.
ranks() {
    local several=(--ranks "$ranks" --device "$device" "${on_gpus[@]}")
    map || return
    run one 1 --parallelism single --device "$device" || return
    run split 1 --parallelism split --partition map "${several[@]}" || return
    run data 1 --parallelism data "${several[@]}" || return
    compared one.jsonl split.jsonl data.jsonl
}

table3() {
    map && gsplit compare "$dataset" --fanouts 15,15,15 --hidden 256 --ranks "$ranks" --device "$device" "${on_gpus[@]}"
}

infer() {
    local what
    graph || return
    [ -d "$work/runs/checkpoint" ] || run inferred 1 --parallelism single --device "$device" --checkpoint "$work/runs/checkpoint" || return
    for what in cpu "$device"; do
        time gsplit infer "$dataset" --checkpoint "$work/runs/checkpoint" --split test --device "$what" --quiet || return
    done
}

# An epoch of PyG, whose loader samples on the CPU.
peer() {
    graph || return
    gsplit export "$dataset" --format pyg --out "$work/pyg" --force || return
    PYTHONPATH=$here/site "$python" "$here/peer.py" "$work/pyg" 15,15,15 "$batch_size" 256 2 "$(nproc)" "$device"
}

if [ "${1:-}" = --step ]; then
    "$2"
    exit
fi

stage=${1:-}
if [ $# != 1 ] || [ -z "${stages[$stage]:-${passing[$stage]:-}}" ]; then
    printf 'usage: %s STAGE, such as sources, first, losses; the head of this file names all\n' "$0" >&2
    exit 2
fi
results=$work/results
rm -rf "$results" "$work/runs" "$work/sources"
mkdir -p "$out" "$results" || exit 1

# Packs all results, of each file its last MiB.
pack() {
    local archive=$out/$stage.tgz bytes
    cp "$work"/runs/*.jsonl "$work"/sources/registers.tsv "$results" 2>/dev/null
    find "$results" -type f -size +1024k -exec sh -c 'tail -c 1048576 "$1" >"$1.end" && mv "$1.end" "$1"' - {} \;
    tar -czf "$archive" -C "$results" . || return
    bytes=$(stat -c %s "$archive")
    printf '%s: %d bytes\n' "$archive" "$bytes"
    [ "$bytes" -le $((16 << 20)) ] || { echo "error: $archive is larger than 16 MiB" >&2; return 1; }
}

export torch=
if [ "$stage" != sources ]; then
    if [ ! -x "$PROGRAMS/gsplit" ] || [ "$PROGRAMS" = "$work/programs" ]; then
        if [ ! -e "$here/programs.tar.gz" ]; then
            echo "error: no programs next to $here/run.sh: build them by \`make gpu-bundle\`, and start the run.sh in target/gpu-bundle" >&2
            exit 1
        fi
        mkdir -p "$PROGRAMS" && tar -xzf "$here/programs.tar.gz" -C "$PROGRAMS" || exit 1
    fi
    torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null)
    if [ "$device" = cuda ]; then
        if [ -n "$torch" ]; then
            LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "$torch"/../nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
            export LD_LIBRARY_PATH
        fi
        if ! "$PROGRAMS/gsplit" doctor --require-gpu >"$results/doctor.txt" 2>&1; then
            grep '^error: ' "$results/doctor.txt" || cat "$results/doctor.txt"
            pack
            exit 1
        fi
    fi
fi

failed=()
for name in ${stages[$stage]:-$stage}; do
    left=$((limit - SECONDS - 10))
    if [ $left -le 0 ]; then
        printf '== %s: left out, the time is over\n' "$name"
        failed+=("$name")
        continue
    fi
    printf '== %s passes where %s\n' "$name" "${passing[$name]}"
    status=0 began=$SECONDS verdict=go
    timeout --kill-after 5 $left bash "$here/${0##*/}" --step "$name" >"$results/$name.txt" 2>&1 || status=$?
    if [ $status != 0 ]; then
        failed+=("$name")
        [[ $needed != *" $name "* ]] || verdict=stop
    fi
    tail -n 25 "$results/$name.txt"
    printf '{"step": "%s", "status": %d, "seconds": %d, "verdict": "%s"}\n' "$name" $status $((SECONDS - began)) $verdict |
        tee -a "$results/results.jsonl"
    [ $verdict = go ] || break
done
pack || failed+=(pack)
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
