#!/usr/bin/env bash
# Packs target/dist/gsplit-VERSION-x86_64-linux.tar.gz: both programs, the libtorch they load, man pages, completions and licences.
# It runs without Rust, on Linux x86-64 with the glibc of this machine or a newer one. GSPLIT names the program [target/release/gsplit].
set -euo pipefail
cd "$(dirname "$0")/.."
gsplit=${GSPLIT:-target/release/gsplit}
version=$("$gsplit" --version | cut -d ' ' -f 2)
name=gsplit-$version-x86_64-linux
tree=target/dist/$name

rm -rf "$tree" "$tree.tar.gz"
mkdir -p "$tree/bin" "$tree/lib"
cp "$gsplit" "$(dirname "$gsplit")/gsplit-train" "$tree/bin/"
# What gsplit-train loads of libtorch, and NVRTC, which it looks for beside that when it runs on a GPU.
libtorch=$(cd -P libtorch/lib && pwd)
for library in $(ldd "$tree/bin/gsplit-train" | awk -v folder="$libtorch/" 'index($3, folder) == 1 || $3 ~ /libtorch\/lib/ { print $1 }') \
    libnvrtc.so.13 libnvrtc-builtins.so.13.0; do
    if [ -e "$libtorch/$library" ]; then cp -L "$libtorch/$library" "$tree/lib/"; fi
done
GSPLIT=$gsplit scripts/share.sh "$tree/share"
cp -r LICENSE LICENSE-APACHE LICENSE-MIT README.md docs BENCHMARKS.md REPRODUCTION.md CHANGELOG.md CONTRIBUTING.md "$tree/"
cat >"$tree/INSTALL" <<TEXT
For Linux on x86-64 with $(getconf GNU_LIBC_VERSION) or newer.

Unpack this folder anywhere, and add its bin/ to PATH. bin/gsplit and bin/gsplit-train belong side by side, and find libtorch in ../lib.

    ./bin/gsplit doctor

says what this machine can train on. The libtorch in lib/ computes on CPUs. To train on NVIDIA GPUs install PyTorch 2.11 with CUDA, and set
LD_LIBRARY_PATH to its folder torch/lib.

share/man goes to MANPATH; share/bash-completion, share/zsh and share/fish hold the completions. lib/ has PyTorch (BSD-3-Clause), CUDA's
libraries (NVIDIA's licence) and GCC's libgomp (GPL with the runtime library exception).
TEXT
tar --directory target/dist --create --gzip --file "$tree.tar.gz" "$name"
echo "$tree.tar.gz: $(du -h "$tree.tar.gz" | cut -f 1)"
