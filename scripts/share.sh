#!/usr/bin/env bash
# Writes the man pages and shell completions into FOLDER/man/man1, FOLDER/bash-completion/completions, FOLDER/zsh/site-functions and
# FOLDER/fish/vendor_completions.d. GSPLIT names the program [target/release/gsplit].
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: scripts/share.sh FOLDER}
gsplit=${GSPLIT:-target/release/gsplit}

rm -rf "$folder"
mkdir -p "$folder"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"$gsplit" man "$folder/man/man1"
"$gsplit" completions bash >"$folder/bash-completion/completions/gsplit"
"$gsplit" completions zsh >"$folder/zsh/site-functions/_gsplit"
"$gsplit" completions fish >"$folder/fish/vendor_completions.d/gsplit.fish"
echo "$folder: $(ls "$folder/man/man1" | wc -l) man pages, completions for bash, zsh and fish"
