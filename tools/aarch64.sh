#!/usr/bin/env bash
# Builds for aarch64 on an x86_64 Debian (12 or newer) and runs under qemu: the tests of the TensorRT and CUDA tables against
# the C doubles, the sample bundle's known answers, and edge-run on one picture of the simulated line.
#   tools/aarch64.sh [FOLDER]      FOLDER: target/aarch64-tools; everything downloaded and built lies in it
# Needs apt, cargo-zigbuild and ziglang (see tools/release.sh). Where the compiler at hand has no standard library for aarch64, Debian's
# `rustc-web` is taken. That, qemu and a C library come from Debian's packages, unpacked beside the system.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath -m "${1:-target/aarch64-tools}")
root=$tools/root
target=aarch64-unknown-linux-gnu
libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu

# Unpacks Debian packages of which each name is given, with the libraries among their dependencies that match a pattern.
unpack() {
  local wanted=$1
  shift
  mkdir -p "$tools"/{lists/partial,cache/archives/partial,debs} "$root"
  # Lists and cache of its own: the system stays as it is. An empty status file makes apt name every package needed.
  : >"$tools/status"
  local apt=(apt-get -q -o "Dir::State::Lists=$tools/lists" -o "Dir::Cache=$tools/cache" -o APT::Sandbox::User=root
    -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o APT::Architecture=amd64)
  [ -e "$tools/listed" ] || "${apt[@]}" update
  touch "$tools/listed"
  local needed
  needed=$("${apt[@]}" -o "Dir::State::Status=$tools/status" install --simulate --no-install-recommends "$@" |
    awk '$1 == "Inst" { print $2 }' | grep -E "^($wanted)$")
  (cd "$tools/debs" && rm -f -- *.deb && printf '%s\n' "$needed" | xargs "${apt[@]}" download)
  local package
  for package in "$tools"/debs/*.deb; do
    dpkg-deb --extract "$package" "$root"
  done
  rm -rf "$tools/debs"
}

unpack_qemu() {
  [ ! -e "$tools/unpacked-qemu" ] || return 0
  unpack 'qemu-user|lib(uring|capstone|glib2|pcre2)[^:]*|zlib1g|libc6-arm64-cross|libgcc-s1-arm64-cross' \
    qemu-user libc6-arm64-cross libgcc-s1-arm64-cross
  touch "$tools/unpacked-qemu"
}

unpack_rust() {
  [ ! -e "$tools/unpacked-rust" ] || return 0
  unpack 'rustc-web|libstd-rust-web[^:]*(:arm64)?|lib(llvm|z3|xml2|icu|edit|bsd|md|tinfo|ffi|zstd|lzma|stdc)[^:]*|zlib1g' \
    rustc-web libstd-rust-web-dev:arm64
  touch "$tools/unpacked-rust"
}

# Rust for aarch64: the compiler at hand where it has the standard library, else Debian's.
has_std() { [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]; }
if ! has_std; then
  unpack_rust
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$root/usr/bin/rustc" >"$tools/rustc"
  chmod +x "$tools/rustc"
  export RUSTC=$tools/rustc
fi
unpack_qemu

# Programs of the system that an emulated one starts must not see these libraries: qemu alone gets them.
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s -E LD_LIBRARY_PATH= -L %s "$@"\n' \
  "$libraries" "$root/usr/bin/qemu-aarch64" "$root/usr/aarch64-linux-gnu" >"$tools/qemu"
chmod +x "$tools/qemu"

# A target folder of its own: another compiler or profile must not take turns with the desk's.
export CARGO_TARGET_DIR=$tools/target
tools/release.sh aarch64 emulated

# The doubles are C; `cc` of the emulated tests is zig's.
mkdir -p "$tools/bin"
printf '#!/bin/sh\nunset LD_LIBRARY_PATH\nexec cargo-zigbuild zig cc -- -target aarch64-linux-gnu "$@"\n' >"$tools/bin/cc"
chmod +x "$tools/bin/cc"
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="env PATH=$tools/bin:$PATH $tools/qemu" \
  EDGE_REQUIRE=cc${EDGE_SHARED:+,shared} \
  cargo-zigbuild test --profile emulated --locked --lib --target "$target.2.31" -- ffi::tensorrt ffi::cuda

"$tools/qemu" target/emulated-binaries/edge-build-aarch64 verify engines/sample/sample.edge --cpu-backend rten --threads 1
result=$tools/result.jsonl
rm -f "$result"
"$tools/qemu" target/emulated-binaries/edge-run-aarch64 --source 'sim:?fast&frames=1&triggers=only' --delivery every \
  --cpu-backend rten --threads 1 --listen none --output "$result"
grep -q '"trust":"trusted"' "$result" && grep -q '"class":' "$result" || {
  echo "found no trusted result with a detection"
  exit 1
}
echo "edge-run for aarch64 found: $(grep -o '"class":"[a-z_]*"' "$result" | tr '\n' ' ')"
