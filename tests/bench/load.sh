#!/usr/bin/env bash
# Rolling restarts on the real control plane: podium-host with a plugin for each of 20 namespaces, and beside it the
# same logic as one program of kube-rs and as one of controller-runtime, all three in release. Arguments: seconds, Pods
# of each namespace, milliseconds between two restarts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
export PATH="$PATH:/usr/local/go/bin"
cargo build --release --workspace --bin podium-host --bin podium-bench
mkdir -p "$target/bench"
(cd tests/bench/controller && go build -o "$target/bench/controller" .)
export PODIUM_LOAD="{
    \"seconds\": $1, \"namespaces\": 20, \"replicas\": $2, \"pause_millis\": $3,
    \"host\": \"$target/release/podium-host\",
    \"kube_rs\": \"$target/release/podium-bench\",
    \"controller_runtime\": \"$target/bench/controller\"
}"
PODIUM_CLUSTER_TESTS=1 exec cargo test --workspace --test cluster -- rolling_restarts_cost_one_write
