#!/usr/bin/env bash
# Builds the rig, in release, and the peer in Go where there is Go; then measures. The arguments are a command of
# `podium-bench`, compare or queue, and its flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# As a whole path: the peer is built from another folder.
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
export PATH="$PATH:/usr/local/go/bin"
# The whole workspace's features, as everything else is built with.
cargo build --release --workspace --features podium-bench/jemalloc --bin podium-bench --bin podium-bench-jemalloc
peer=()
if command -v go >/dev/null; then
    mkdir -p "$target/bench"
    (cd tests/bench/go && go build -o "$target/bench/peer" .)
    peer=(--go "$target/bench/peer")
else
    echo "there is no go: client-go is left out" >&2
fi
command=$1
shift
exec "$target/release/podium-bench" "$command" "${peer[@]}" "$@"
