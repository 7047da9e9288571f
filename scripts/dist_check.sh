#!/usr/bin/env bash
# Uses what scripts/dist.py packed, an archive or its unpacked FOLDER, in a root that holds nothing else but /dev, /proc, /tmp and the libraries
# that INSTALL names. It needs root, or a system that gives users namespaces of their own.
set -euo pipefail
packed=$(realpath "${1:?usage: scripts/dist_check.sh ARCHIVE|FOLDER}")
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mkdir -p "$root"/{gsplit,dev,proc,tmp,lib64}
if [ -d "$packed" ]; then cp -r "$packed"/. "$root/gsplit"; else tar --extract --file "$packed" --strip-components 1 --directory "$root/gsplit"; fi

# Libraries are where this machine's loader looks for them, the loader where every program names it.
for name in $(grep -o 'needs .*\.$' "$root/gsplit/INSTALL" | grep -oE '(lib|ld-)[a-z0-9_+-]*\.so\.[0-9]+'); do
    found=$(ldconfig -p | awk -v name="$name" '$1 == name && /x86-64/ && !seen++ { print $NF }')
    mkdir -p "$root$(dirname "${found:?error: $name is not on this machine}")"
    cp -L "$found" "$root$found"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for program in "$root"/gsplit/bin/*; do
    runpath=$(readelf --dynamic "$program" | sed -n 's/.*(RUNPATH).*\[\(.*\)\]/\1/p')
    if [ "$runpath" != '$ORIGIN/../lib' ]; then echo "error: ${program##*/} looks for libraries in $runpath" >&2; exit 1; fi
done

cat >"$work/inside" <<'INSIDE'
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
inside() { env -i TMPDIR=/tmp HOME=/tmp "$(command -v chroot)" "$1" /gsplit/bin/gsplit "${@:2}"; }
inside "$1" --version
inside "$1" generate community --vertices 2000 --edges 20000 --out /tmp/ds --quiet
inside "$1" partition /tmp/ds --parts 2 --weights degree --quiet
if [ -e "$1/gsplit/bin/gsplit-train" ]; then
    inside "$1" train /tmp/ds --ranks 2 --fanouts 5,5 --hidden 16 --epochs 1 --quiet
    inside "$1" doctor >"$1/tmp/doctor"
elif inside "$1" doctor >"$1/tmp/doctor" 2>&1; then
    echo "error: doctor finds no fault" >&2
    exit 1
fi
if grep --quiet 'make ' "$1/tmp/doctor"; then
    echo "error: doctor has a remedy for a clone:" >&2
    grep 'make ' "$1/tmp/doctor" >&2
    exit 1
fi
INSIDE
if [ "$(id -u)" = 0 ]; then own=(); else own=(--map-root-user); fi
unshare "${own[@]}" --mount bash -eu "$work/inside" "$root"
echo "$(basename "$packed") works in an empty root"
