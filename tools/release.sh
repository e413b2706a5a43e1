#!/usr/bin/env bash
# Binaries that need at most GLIBC 2.31 (JetPack 5, Debian 11, Ubuntu 20.04), in target/PROFILE-binaries/.
#   tools/release.sh [x86_64|aarch64] [PROFILE]      PROFILE: release; `emulated` is that of tools/aarch64.sh
# Needs cargo-zigbuild with a `zig` that it finds (`pip install cargo-zigbuild ziglang`), readelf, and Rust's standard
# library for the architecture (tools/aarch64.sh takes Debian's).
set -euo pipefail
cd "$(dirname "$0")/.."
glibc=2.31
architecture=${1:-x86_64}
profile=${2:-release}
target=$architecture-unknown-linux-gnu

if [ "$profile" = emulated ]; then
  # With the tests, so that both are built from the same dependencies once.
  cargo-zigbuild test --no-run --profile "$profile" --locked --lib --test layering --target "$target.$glibc"
else
  cargo-zigbuild zigbuild --profile "$profile" --locked --bins --target "$target.$glibc"
fi
mkdir -p "target/$profile-binaries"
for program in edge-build edge-run; do
  from=${CARGO_TARGET_DIR:-target}/$target/$profile/$program
  to=target/$profile-binaries/$program-$architecture
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
