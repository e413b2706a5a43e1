#!/usr/bin/env bash
# Fuzzes every target of fuzz/ with libFuzzer on the stable toolchain, starting from fuzz/corpus.
#   tools/fuzz.sh [SECONDS] [TARGET ...]      default: 30 seconds each, all targets
# What crashes is kept in fuzz/artifacts. New inputs are kept in target/fuzz-found, not in the corpus.
# Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(onnx bundle picture config metadata incident)
host=$(uname -m)-unknown-linux-gnu

# Coverage counters as cargo-fuzz sets them; the target is named so that build scripts stay as they are.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Ccodegen-units=1 --cfg fuzzing" \
  cargo build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz

for target in "${targets[@]}"; do
  echo "--- $target, $seconds s"
  mkdir -p "target/fuzz-found/$target" "fuzz/artifacts/$target"
  "target/fuzz/$host/release/$target" "target/fuzz-found/$target" "fuzz/corpus/$target" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="fuzz/artifacts/$target/" -verbosity=0 2>&1 | grep -vE '^(INFO|#|WARNING)|# Uses:|NEW_FUNC' || [ "${PIPESTATUS[0]}" = 0 ]
done
