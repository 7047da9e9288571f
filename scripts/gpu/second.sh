#!/usr/bin/env bash
# One call of nine minutes on a machine with one GPU: the memory of a run over time, losses in each number type, milliseconds of a step
# compared with PyTorch and PyG on the same GPU, and counters of the profiler. `make gpu-bundle` packs this with the programs that it needs.
#
#   second.sh
#
# Steps are in the order of their worth. Each has a limit of its own; the table names steps that are left out. At the end it prints a
# table: step, status, seconds, number, and the mark that the number is to reach; a step whose mark is missed has status 9. $OUT has the
# table after every step, the logs of training, and the last lines of each step. Variables, as in run.sh: OUT, WORK, PROGRAMS, PYTHON,
# LIMIT, and
#
#   DEVICE=cpu     tries the script without a GPU: a smaller graph, and nothing that needs CUDA
#   VERTICES=n     vertices of the larger graph, 26 edges each [2400000, the shape of ogbn-products; 100000 on a CPU]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export DEVICE=${DEVICE:-cuda} WORK=${WORK:-${TMPDIR:-/tmp}/gsplit-second} PYTHON=${PYTHON:-python3}
export PROGRAMS=${PROGRAMS:-$WORK/programs} out=${OUT:-$WORK/out} bench=$here
limit=${LIMIT:-540} vertices=${VERTICES:-$([ "$DEVICE" = cuda ] && echo 2400000 || echo 100000)}
export products=$WORK/products small=$WORK/small runs=$WORK/runs
rm -rf "$runs" && mkdir -p "$out" "$runs" "$PROGRAMS"
[ ! -e "$here/programs.tar.gz" ] || [ -x "$PROGRAMS/gsplit" ] || tar -xzf "$here/programs.tar.gz" -C "$PROGRAMS" || exit 1
torch=$("$PYTHON" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null)
if [ "$DEVICE" = cuda ]; then
    export LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "$torch"/../nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin PYTHONUNBUFFERED=1
: >"$out/steps.tsv"

# step NAME SECONDS MARK COMMAND...: runs the command for so long at most. Its last line that begins with `= ` is the step's number.
step() {
    local name=$1 most=$2 mark=$3 left=$((limit - SECONDS - 8)) began=$SECONDS status=0 number=
    shift 3
    if [ $left -le 5 ]; then
        printf '%s\tleft out\t\t\t%s\n' "$name" "$mark" >>"$out/steps.tsv"
        return
    fi
    [ "$most" -lt $left ] || most=$left
    timeout --kill-after 3 "$most" "$@" >"$WORK/said" 2>&1 || status=$?
    tail -c 65536 "$WORK/said" >"$out/$name.txt"
    number=$(sed -n 's/^= //p' "$WORK/said" | tail -n 1)
    printf '%s\t%d\t%d\t%s\t%s\n' "$name" $status $((SECONDS - began)) "$number" "$mark" | tee -a "$out/steps.tsv"
    [ $status = 0 ] || tail -n 3 "$WORK/said" | cut -c1-200
}
needs_cuda() { [ "$DEVICE" = cuda ] && step "$@"; }

# train NAME EPOCHS OPTION...: one rank, three layers of 256.
train() {
    local name=$1 epochs=$2
    shift 2
    "$PROGRAMS/gsplit" train "${DATA:-$products}" --fanouts 15,15,15 --hidden 256 --epochs "$epochs" --eval-every 0 --parallelism "${WAY:-single}" \
        --device "$DEVICE" --quiet --log "$runs/$name.jsonl" "$@"
}
# log CODE NAME...: runs CODE with `runs`, the epochs of each log, of which it prints a number.
log() {
    local code=$1
    shift
    (cd "$runs" && "$PYTHON" -c '
import json, sys
runs = {name: [line for line in map(json.loads, open(f"{name}.jsonl")) if "epoch" in line and "loss" in line] for name in sys.argv[2:]}
first = next(iter(runs.values()))
def held(line): return (line.get("gpu_pool_bytes", 0) + line.get("gpu_torch_bytes", 0)) / 1e9
def check(reached): sys.exit(0 if reached else 9)
exec(sys.argv[1])' "$code" "$@")
}
growth() {
    train growth 12 --batch-size 1024 && log '
most, late = max(map(held, first)), first[-1]["seconds"] / first[1]["seconds"]
print(f"= {most:.1f} GB, last epoch {late:.2f} of the second")
check(most < 12 and late <= 1.02)' growth
}
# losses NAME WITHIN OPTION...: compares them with the losses of the CPU, on the small graph.
losses() {
    local name=$1 within=$2
    shift 2
    DATA=$small train "$name" 2 --batch-size 1024 "$@" && within=$within log '
import os
off = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(*runs.values()))
print(f"= {off:.1e}")
check(off <= float(os.environ["within"]))' loss-cpu "$name"
}
# speed NAME MILLISECONDS OPTION...: of the fastest epoch after the first.
speed() {
    local name=$1 most=$2 seeds=${1##*-}
    shift 2
    train "$name" 4 --batch-size "$seeds" "$@" && most=$most seeds=$seeds log '
import math, os
steps = math.ceil(int(os.environ["trained"]) / int(os.environ["seeds"]))
best = min(first[1:], key=lambda line: line["seconds"])
ms = 1e3 * best["seconds"] / steps
parts = ", ".join("%s %.2f" % (what, 1e3 * best[what + "_s"] / steps) for what in ("sample", "load", "compute"))
print(f"= {ms:.2f} ms a step ({parts}), {held(best):.1f} GB")
check(ms <= float(os.environ["most"]))' "$name"
}
# peer NAME TIMES OWN COMMAND...: a peer that prints JSON with `ms` a step, compared with the fastest run of gsplit in the same type and size.
peer() {
    local name=$1 times=$2 own=$3
    shift 3
    "$@" >"$runs/$name.json" && "$PYTHON" -c '
import json, re, sys
name, times, own, steps = sys.argv[1:]
ms = json.load(open(name))["ms"]
kind, seeds = own.split("-")
rows = [line.split("\t") for line in open(steps)]
rows = [row[3] for row in rows if row[0].startswith(f"{kind}-") and row[0].endswith(f"-{seeds}") and row[3]]
found = [float(re.match("[0-9.]+", number)[0]) for number in rows]
ratio = ms / min(found) if found else 0
print(f"= {ms:.2f} ms a step, {ratio:.1f} times as long as gsplit")
sys.exit(0 if ratio >= float(times) else 9)' "$runs/$name.json" "$times" "$own" "$out/steps.tsv"
}
pyg() {
    "$PROGRAMS/gsplit" export "$products" --format pyg --out "$WORK/pyg" --force --quiet || return
    PYTHONPATH=$here/site peer pyg-1024 5 f32-1024 "$PYTHON" "$bench/peer.py" "$WORK/pyg" 15,15,15 1024 256 1 "$(($(nproc) - 2))" "$DEVICE" 60
}
# One test of each kind of kernel, with the GPU opened once.
memcheck() {
    local names
    mapfile -t names < <("$PROGRAMS/tests-kernels" --list | sed -n 's/: test$//p' | grep -E '^(sample|gather|unique|spmm|group|scan|split)::' |
        grep -E 'device|oracle|cuda' | awk -F:: '!seen[$1]++')
    GSPLIT_TEST_GPU=keep RUST_TEST_THREADS=1 compute-sanitizer --tool memcheck --error-exitcode 9 "$PROGRAMS/tests-kernels" --exact "${names[@]}" &&
        echo "= ${#names[@]} tests"
}
# Products of rows in bf16 and f16, long sums too, and a rank of NCCL whose other never joins.
exact() {
    GSPLIT_TEST_GPU=1 GSPLIT_TEST_LARGE=1 LD_PRELOAD=$torch/lib/libtorch_cuda.so "$PROGRAMS/tests-trainer" products_of_numbers &&
        GSPLIT_TEST_GPU=1 "$PROGRAMS/tests-kernels" real_gpus_wait_for_no_rank && echo '= exact'
}
# torch maps its memory where it otherwise allocates it.
segments() {
    PYTORCH_ALLOC_CONF=expandable_segments:True train segments 2 --batch-size 1024 && log '
off = abs(first[1]["loss"] / runs["growth"][1]["loss"] - 1)
print(f"= losses within {off:.1e}")
check(off < 1e-6)' segments growth
}
pytorch() { VERTICES=50000 GSPLIT=$PROGRAMS/gsplit WORK=$WORK/torch "$here/torch.sh" "$here/python" && echo '= losses of the CPU'; }
# Tensors of mini-batches that the GPU samples for Python, and how long they take.
loader() { PYTHONPATH=$here/python "$PYTHON" "$bench/loader.py" "$products" 15,15,15 1024 40 "$DEVICE"; }
counters() {
    ncu --clock-control none --target-processes all -k 'regex:sum_|epilogue|sample_few|gather' --launch-skip 120 --launch-count 14 \
        --section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy "$PROGRAMS/gsplit" train "$products" --fanouts 15,15,15 \
        --hidden 256 --batch-size 8192 --epochs 1 --eval-every 0 --parallelism single --device cuda --dtype bf16 --prefetch 0 --trial 8 --quiet &&
        echo '= see counters.txt'
}
# Four ranks that share the GPU have the losses of one.
four() {
    "$PROGRAMS/gsplit" partition "$small" --parts 4 --weights degree --key map --quiet --force || return
    DATA=$small train one 2 --batch-size 1024 || return
    local gpus=()
    [ "$DEVICE" != cuda ] || gpus=(--gpus 0,0,0,0)
    DATA=$small WAY=split train split 2 --batch-size 1024 --ranks 4 --partition map "${gpus[@]}" && log '
off = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(*runs.values()))
print(f"= {off:.1e}")
check(off < 1e-5)' one split
}
# Others leave 6 GiB of the GPU: rows that do not fit stay on the host, and nothing is out of memory.
full() {
    "$PYTHON" -c '
import time, torch
held = torch.empty(torch.cuda.mem_get_info()[0] - (6 << 30), dtype=torch.uint8, device="cuda")
time.sleep(60)' & local ballast=$!
    sleep 4
    train full 2 --batch-size 1024
    local status=$?
    kill $ballast
    [ $status = 0 ] && log '
ratio = first[1]["seconds"] / runs["growth"][1]["seconds"]
print(f"= {ratio:.2f} of an epoch on an empty GPU")
check(ratio <= 1.5 and abs(first[1]["loss"] / runs["growth"][1]["loss"] - 1) < 1e-5)' full growth
}
export -f train log growth losses speed peer pyg memcheck exact segments pytorch loader counters four full
export here torch

generate() {
    [ -d "$2" ] || "$PROGRAMS/gsplit" generate community --vertices "$1" --edges $(($1 * 26)) --feature-dim 100 --feature-dtype f16 --classes 47 \
        --random-split 0.08,0.02,0.02 --out "$2" --quiet
}
generate "$vertices" "$products" & large=$!
generate $((vertices / 12)) "$small" & little=$!
needs_cuda probe 45 'a variant reserves at most 2.5 GB' "$PYTHON" "$bench/pool_probe.py"
needs_cuda doctor 40 'the GPU can be used' "$PROGRAMS/gsplit" doctor --require-gpu
wait $large && wait $little || exit 1
export trained=$((vertices * 8 / 100))

step growth 60 'below 12 GB, last epoch <= 1.02 of the second' bash -c growth
DEVICE=cpu step loss-cpu 40 '' bash -c 'DATA=$small train loss-cpu 2 --batch-size 1024'
step loss-f32 15 '1e-7 of the CPU' bash -c 'losses loss-f32 1e-7'
needs_cuda loss-tf32 15 '1e-3' bash -c 'losses loss-tf32 1e-3 --products tf32'
step loss-bf16 15 '5e-3' bash -c 'losses loss-bf16 5e-3 --dtype bf16'
for seeds in 1024 8192; do
    step f32-$seeds 15 '' bash -c "speed f32-$seeds inf"
    step bf16-$seeds 15 "$([ $seeds = 1024 ] && echo 2.2 || echo 8.5) ms" bash -c "speed bf16-$seeds $([ $seeds = 1024 ] && echo 2.2 || echo 8.5) --dtype bf16"
    needs_cuda tf32-$seeds 15 '' bash -c "speed tf32-$seeds inf --products tf32"
    step f32-alone-$seeds 15 '' bash -c "speed f32-alone-$seeds inf --prefetch 0"
    step bf16-alone-$seeds 15 '' bash -c "speed bf16-alone-$seeds inf --dtype bf16 --prefetch 0"
done
for dtype in f32 bf16; do
    for seeds in 1024 8192; do
        step torch-$dtype-$seeds 25 'at least 2 times as long' bash -c \
            "peer torch-$dtype-$seeds 2 $dtype-$seeds $PYTHON $bench/torch_peer.py $vertices 52 15,15,15 $seeds 256 $([ "$DEVICE" = cuda ] && echo 40 || echo 2) $dtype"
    done
done
step pyg 70 'at least 5 times as long' bash -c pyg
needs_cuda memcheck 70 'no error' bash -c memcheck
needs_cuda exact 30 'the same numbers; an error after 3 s' bash -c exact
needs_cuda segments 15 'losses within 1e-6' bash -c segments
needs_cuda pytorch 60 "the CPU's losses" bash -c pytorch
needs_cuda loader 60 "the CPU's mini-batches" bash -c loader
needs_cuda counters 55 'sums read 16 bytes a load' bash -c counters
step four 30 '1e-5 of one rank' bash -c four
needs_cuda full 40 'at most 1.5 times as long, same losses' bash -c full

tar -czf "$out/runs.tgz" -C "$runs" .
printf '\n%-16s %-8s %4s  %-62s %s\n' step status s number mark
awk -F '\t' '{ printf "%-16s %-8s %4s  %-62s %s\n", $1, $2, $3, $4, $5; bad += $2 != "0" } END { exit bad > 0 }' "$out/steps.tsv"
