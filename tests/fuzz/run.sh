#!/usr/bin/env bash
# Fuzzes one target: `bash tests/fuzz/run.sh frames 600`. Further arguments go to libFuzzer.
#
# cargo-fuzz is not needed: it would only build with LLVM's own flags (rustc.sh), which work on the pinned toolchain.
# Only the address sanitizer needs a nightly toolchain, and code without `unsafe` has little use for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${1:?usage: run.sh TARGET [SECONDS] [LIBFUZZER FLAGS]}
seconds=${2:-600}
shift $(($# < 2 ? $# : 2))
# Inputs worth keeping, and those that failed.
work=target/fuzz/$target
mkdir -p "$work/corpus" "$work/failures"

# The versions that the host is built with; cargo adds libFuzzer's to them.
cp Cargo.lock tests/fuzz/Cargo.lock
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_WRAPPER=$PWD/tests/fuzz/rustc.sh cargo build --release --manifest-path tests/fuzz/Cargo.toml \
    --target-dir target/fuzz/build --target "$host" --bin "$target"
cargo run --quiet --example fuzz_seeds -- "$target" "$work/corpus"

dictionary=tests/fuzz/dictionaries/$target
# The journal is a file: in memory, where the machine has a place for that.
[[ -w /dev/shm ]] && export TMPDIR=/dev/shm
# A Pod as large as real ones, or several small ones. Longer inputs are slower and find nothing else.
exec "target/fuzz/build/$host/release/$target" \
    -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$work/failures/" \
    $([[ -f $dictionary ]] && echo "-dict=$dictionary") \
    "$@" "$work/corpus" "tests/fuzz/regressions/$target"
