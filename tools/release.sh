#!/usr/bin/env bash
# Release binaries that need at most GLIBC 2.31 (JetPack 5, Debian 11, Ubuntu 20.04), in target/release-binaries/.
#   tools/release.sh [x86_64|aarch64]
# Needs cargo-zigbuild with a `zig` that it finds (`pip install cargo-zigbuild ziglang`), readelf, and Rust's standard
# library for the architecture; tools/aarch64.sh gets the one for aarch64 on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
glibc=2.31
architecture=${1:-x86_64}
target=$architecture-unknown-linux-gnu

cargo-zigbuild zigbuild --release --locked --bins --target "$target.$glibc"
mkdir -p target/release-binaries
for program in edge-build edge-run; do
  from=target/$target/release/$program
  to=target/release-binaries/$program-$architecture
  cp "$from" "$to"
  strip_with=$(command -v llvm-strip || true)
  [ "$architecture" = "$(uname -m)" ] && strip_with=$(command -v strip || true)
  [ -z "$strip_with" ] || "$strip_with" --strip-debug "$to"
  needs=$(readelf --version-info --wide "$to" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  [ -n "$needs" ] || { echo "$to: no GLIBC version in its symbol table"; exit 1; }
  newest=$(printf '%s\nGLIBC_%s\n' "$needs" "$glibc" | sort -V | tail -n 1)
  [ "$newest" = "GLIBC_$glibc" ] || { echo "$to: needs $needs, at most GLIBC_$glibc asked"; exit 1; }
  echo "$to: needs $needs, libraries: $(readelf -d "$to" | grep NEEDED | grep -o '\[.*\]' | tr '\n' ' ')"
done
