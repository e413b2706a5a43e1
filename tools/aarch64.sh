#!/usr/bin/env bash
# Builds the aarch64 binaries on an x86_64 Debian (12 or newer) and runs edge-run under qemu on one picture of the simulated
# line. Rust for aarch64, qemu and a C library come from Debian's packages, unpacked into FOLDER beside the system.
#   tools/aarch64.sh [FOLDER]      FOLDER: target/aarch64-tools
# Needs apt, cargo-zigbuild and ziglang (see tools/release.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath -m "${1:-target/aarch64-tools}")
root=$tools/root

unpack() {
  mkdir -p "$tools"/{lists/partial,cache/archives/partial,debs} "$root"
  # Lists and cache of its own: the system stays as it is. An empty status file makes apt name every package needed.
  : >"$tools/status"
  local apt=(apt-get -q -o "Dir::State::Lists=$tools/lists" -o "Dir::Cache=$tools/cache"
    -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o APT::Architecture=amd64)
  "${apt[@]}" update
  local needed
  needed=$("${apt[@]}" -o "Dir::State::Status=$tools/status" install --simulate --no-install-recommends \
    rustc-web libstd-rust-web-dev:arm64 libc6-arm64-cross libgcc-s1-arm64-cross qemu-user |
    awk '$1 == "Inst" { print $2 }' |
    grep -E '^(rustc-web|libstd-rust-web[^:]*(:arm64)?|lib(llvm|z3|xml2|icu|edit|bsd|md|tinfo|ffi|zstd|lzma|uring|capstone|glib2|pcre2|stdc|gcc-s1|c6-arm64)[^:]*|zlib1g|qemu-user|libgcc-s1-arm64-cross)$')
  (cd "$tools/debs" && printf '%s\n' "$needed" | xargs "${apt[@]}" download)
  for package in "$tools"/debs/*.deb; do
    dpkg-deb --extract "$package" "$root"
  done
  touch "$tools/unpacked"
}

[ -e "$tools/unpacked" ] || unpack

libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$root/usr/bin/rustc" >"$tools/rustc"
chmod +x "$tools/rustc"
RUSTC=$tools/rustc tools/release.sh aarch64

result=$tools/result.jsonl
rm -f "$result"
LD_LIBRARY_PATH=$libraries "$root/usr/bin/qemu-aarch64" -E LD_LIBRARY_PATH= -L "$root/usr/aarch64-linux-gnu" \
  target/release-binaries/edge-run-aarch64 --source 'sim:?fast&frames=1&triggers=only' --delivery every \
  --cpu-backend rten --threads 1 --listen none --output "$result"
grep -q '"trust":"trusted"' "$result" && grep -q '"class":' "$result" || {
  echo "found no trusted result with a detection"
  exit 1
}
echo "edge-run for aarch64 found: $(grep -o '"class":"[a-z_]*"' "$result" | tr '\n' ' ')"
