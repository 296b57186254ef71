#!/usr/bin/env bash
# Builds the rig, in release, and the peer in Go where there is Go; then measures. The arguments are a command of
# `podium-bench`, compare, load or queue, and its flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# As a whole path: the peer is built from another folder.
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
export PATH="$PATH:/usr/local/go/bin"
command=$1
shift
bins=(--bin podium-bench --bin podium-bench-jemalloc)
go=() # The folder of a peer in Go, and the flag for it.
case "$command" in
load) bins+=(--bin podium-host) go=(controller --controller) ;;
*) go=(go --go) ;;
esac
# The whole workspace's features, as everything else is built with.
cargo build --release --workspace --features podium-bench/jemalloc "${bins[@]}"
peer=()
if command -v go >/dev/null; then
    mkdir -p "$target/bench"
    (cd "tests/bench/${go[0]}" && go build -o "$target/bench/${go[0]}" .)
    peer=("${go[1]}" "$target/bench/${go[0]}")
else
    echo "there is no go: its peers are left out" >&2
fi
# The control plane is built the first time.
PODIUM_CLUSTER_TESTS=1 exec "$target/release/podium-bench" "$command" "${peer[@]}" "$@"
