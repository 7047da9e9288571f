#!/usr/bin/env bash
# The main job end to end: a graph becomes a dataset, is pre-sampled, partitioned and trained on in three ways that must
# learn the same. DATA=path takes a real graph instead of a generated one: an OGB folder (with raw/) or an edge list.
set -euo pipefail
cd "$(dirname "$0")/.."

gsplit=target/release/gsplit
out=demo
parts=4
epochs=${EPOCHS:-$([ -n "${DATA:-}" ] && echo 20 || echo 5)}
fanouts=${FANOUTS:-10,5}
layers=$(tr ',' '\n' <<<"$fanouts" | wc -l)

step() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
run() {
    printf '$ gsplit %s\n' "$*"
    "$gsplit" "$@"
}

if [ -n "${DATA:-}" ]; then
    name=$(basename "${DATA%/}")
    dataset=$out/${name%%.*}
    step "convert: $DATA becomes a dataset directory, once"
    if [ -d "$DATA" ]; then
        # A graph that comes without features gets structural ones.
        features=()
        if [ ! -e "$DATA/raw/node-feat.csv.gz" ] && [ ! -e "$DATA/raw/data.npz" ]; then features=(--features fastrp:128); fi
        run convert ogb "$DATA" --out "$dataset" --symmetrise "${features[@]}"
    else
        run convert snap "$DATA" --out "$dataset" --symmetrise --drop-self-loops --features fastrp:128 --random-split 0.1,0.05,0.05
    fi
else
    dataset=$out/community
    step "generate: a graph with communities to learn, as a dataset directory"
    run generate community --vertices 50000 --edges 500000 --seed 1 --out "$dataset"
fi

step "presample: how often does training touch each vertex and edge?"
run presample "$dataset" --fanouts "$fanouts" --epochs 5

step "partition: into $parts parts, with those weights (METIS), and at random to compare"
run partition "$dataset" --parts $parts --partitioner random --key "random-k$parts"
run partition "$dataset" --parts $parts --key "gsplit-k$parts"

if ! "$gsplit" inspect "$dataset" --json | grep -q '"num_classes":[0-9]'; then
    step "no labels: there is nothing to train for"
    run inspect "$dataset"
    exit 0
fi

runs=$dataset.runs
rm -rf "$runs"
logs=()
train() { # name, then the options that make it what it is
    local name=$1 log=$runs/$1.jsonl
    shift
    step "train: $name"
    run train "$dataset" "$@" --layers "$layers" --fanouts "$fanouts" --hidden 128 --dropout 0.3 --lr 0.003 \
        --epochs "$epochs" --eval-every "$epochs" --log "$log"
    logs+=("$log")
}
train single --parallelism single
train data --parallelism data --ranks $parts
train split-random --parallelism split --ranks $parts --partition "random-k$parts"
train split --parallelism split --ranks $parts --partition "gsplit-k$parts" --checkpoint "$runs/split"

step "the same losses, with less work: edges computed, feature rows loaded, rows exchanged, all ranks together"
run compare "${logs[@]}"
cat <<TEXT

data computes and loads again what its ranks share; split does everything once and exchanges rows instead;
the pre-sampled partition keeps most of them at home.

dataset      $dataset, with its presample and partitions (target/release/gsplit inspect $dataset)
logs         $runs/*.jsonl
checkpoints  $runs/split
TEXT
