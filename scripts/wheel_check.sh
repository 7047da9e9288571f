#!/usr/bin/env bash
# Installs WHEEL with its dependencies into a fresh environment of PYTHON [python3], and uses it there, without Rust on PATH.
# TORCH=torch==2.11.0 installs that too, and trains.
set -euo pipefail
wheel=$(realpath "${1:?usage: scripts/wheel_check.sh WHEEL [PYTHON]}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${2:-python3}" -m venv "$folder/env"
cd "$folder"
export PATH=$folder/env/bin:/usr/local/bin:/usr/bin:/bin
unset GSPLIT LIBTORCH LD_LIBRARY_PATH
pip install --quiet --disable-pip-version-check "$wheel"

gsplit --version
gsplit generate community --vertices 2000 --edges 20000 --out ds --quiet
gsplit inspect ds >inspected
test -f env/share/man/man1/gsplit-train.1
python -c 'import gsplit; ds = gsplit.open("ds"); print(ds, len(next(iter(gsplit.NeighborLoader(ds, [5, 5], batch_size=64))).n_id))'
PATH=/usr/bin:/bin "$folder/env/bin/python" -c 'import gsplit; gsplit.presample("ds", fanouts=[5, 5], quiet=True)'
if told=$(gsplit train ds 2>&1); then echo "error: it trained without torch" && exit 1; fi
echo "$told"
test "$(wc -l <<<"$told")" = 1 && grep -q '^error: .*`pip install torch==' <<<"$told"

if [ -n "${TORCH:-}" ]; then
    pip install --quiet --disable-pip-version-check "$TORCH"
    gsplit-train --version
    gsplit partition ds --parts 2 --weights degree --quiet
    gsplit train ds --ranks 2 --layers 2 --fanouts 5,5 --hidden 16 --epochs 2
fi
echo "$(basename "$wheel") works with $(python --version)"
