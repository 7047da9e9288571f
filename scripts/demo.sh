#!/usr/bin/env bash
# The main job end to end: a graph becomes a dataset, is pre-sampled, partitioned and trained on in three ways that must
# learn the same. All files are in demo/; a second run reuses the ones that fit and makes the rest. Variables:
#
#   DATA=path       a real graph instead of a generated one: an OGB folder (with raw/) or a SNAP edge list
#   EPOCHS=n        epochs of each training run [3, with DATA 20]
#   FANOUTS=a,b,..  in-neighbours sampled at each layer, from the seeds downwards, and so the number of layers [10,10,5, with DATA 10,5]
#   HIDDEN=n        width of the hidden layers [256, with DATA 128]
#   SYMMETRISE=1    store every edge of an OGB graph in both directions. OGB graphs are taken as they are otherwise;
#                   ogbn-products, which lists each edge once, needs it. Edge lists are always symmetrised.
set -euo pipefail
cd "$(dirname "$0")/.."

gsplit=target/release/gsplit
out=demo
parts=4
# The generated graph is dense and the model wide enough for the work to outweigh the exchange.
if [ -n "${DATA:-}" ]; then usual=(20 10,5 128); else usual=(3 10,10,5 256); fi
epochs=${EPOCHS:-${usual[0]}}
fanouts=${FANOUTS:-${usual[1]}}
hidden=${HIDDEN:-${usual[2]}}
fanouts=${fanouts// /}
layers=$(tr ',' '\n' <<<"$fanouts" | wc -l)
hyphened=${fanouts//,/-}
presample=f${hyphened}_b1024_e5_s0
random=random-k$parts-f$hyphened
weighted=gsplit-k$parts-f$hyphened

step() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
run() {
    printf '$ gsplit %s\n' "$*"
    "$gsplit" "$@"
}
has_features() { # the raw/ folder of OGB
    if [ -e "$1/data.npz" ]; then
        python3 -m zipfile -l "$1/data.npz" | grep '^node_feat\.npy' >/dev/null
    else
        [ -e "$1/node-feat.csv.gz" ] || [ -e "$1/node-feat.csv" ]
    fi
}

if [ -n "${DATA:-}" ]; then
    name=$(basename "${DATA%/}")
    dataset=$out/${name%%.*}
    step "convert: $DATA becomes a dataset directory, once"
    if [ -d "$DATA" ]; then
        options=()
        if [ "${SYMMETRISE:-}" = 1 ]; then
            dataset=$dataset-symmetrised
            options+=(--symmetrise)
        fi
        # A graph that comes without features gets structural ones.
        has_features "$DATA/raw" || options+=(--features fastrp:128)
        run convert "$DATA" --out "$dataset" "${options[@]}"
    else
        run convert "$DATA" --out "$dataset" --symmetrise --drop-self-loops --features fastrp:128 --random-split 0.1,0.05,0.05
    fi
else
    dataset=$out/communities
    step "generate: a graph with communities to learn, as a dataset directory"
    run generate community --vertices 50000 --edges 1000000 --feature-dim 256 --random-split 0.2,0.05,0.05 --seed 1 --out "$dataset"
fi

step "presample: how often does training touch each vertex and edge?"
run presample "$dataset" --fanouts "$fanouts" --batch-size 1024 --epochs 5 --key "$presample"

step "partition: into $parts parts, with those weights, and at random to compare"
run partition "$dataset" --parts $parts --presample "$presample" --partitioner random --key "$random"
run partition "$dataset" --parts $parts --presample "$presample" --key "$weighted"

if ! "$gsplit" inspect "$dataset" --json | grep '"num_classes":[0-9]' >/dev/null; then
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
    run train "$dataset" "$@" --layers "$layers" --fanouts "$fanouts" --hidden "$hidden" --dropout 0.3 --lr 0.003 \
        --epochs "$epochs" --eval-every "$epochs" --log "$log"
    logs+=("$log")
}
train single --parallelism single
train data --parallelism data --ranks $parts
train split-random --parallelism split --ranks $parts --partition "$random"
train split --parallelism split --ranks $parts --partition "$weighted" --checkpoint "$runs/split"

step "compare: losses, and the work of all ranks together: edges computed, feature rows loaded, rows exchanged"
run compare "${logs[@]}"
printf '\ndata computes and loads again what its ranks share; split does everything once and exchanges rows instead.\n\n'
python3 scripts/verdict.py "$runs/split.jsonl" "$runs/data.jsonl"
cat <<TEXT

dataset      $dataset, with its presample and partitions (target/release/gsplit inspect $dataset)
logs         $runs/*.jsonl
checkpoints  $runs/split
TEXT
