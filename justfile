# The commands that people and CI run. Each recipe is one command of the README or a step of .ci/run, so that there is
# one way to do it.

# List the recipes
default:
    @just --list --unsorted

# Run the demo on an in-process cluster, and check the result
demo *ARGS:
    cargo demo {{ARGS}}

# A cluster in the process, the host, and plugins that are swapped when their source changes
dev *ARGS:
    cargo podium dev {{ARGS}}

# Attack the host with hostile components, and measure a plugin of another tenant beside them
demo-hostile *ARGS:
    cargo demo --hostile {{ARGS}}

# Every test. The suites on a real control plane run where it is built, see test-cluster; a line names skipped suites
test *ARGS:
    cargo test --workspace {{ARGS}}

# The suites on a real control plane and a real registry, which Go builds the first time
test-cluster *ARGS:
    PODIUM_CLUSTER_TESTS=1 cargo test --workspace --test cluster --test registry {{ARGS}}

# The property tests of the host with CASES cases each
test-properties CASES="100000":
    PROPTEST_CASES={{CASES}} \
        cargo test --workspace --lib -- properties authz:: wake:: hash_index position_set persistent_vec
    PROPTEST_CASES={{CASES}} cargo test -p podium-encoding --lib

# The authorization of writes and Events against an independent writing of its rules, with CASES random cases
test-authz CASES="100000000":
    PODIUM_AUTHZ_CASES={{CASES}} cargo test -p podium-vocabulary --release --lib -- authz::tests::properties

# Mutation tests of the authorization: every change of its code fails a test. Needs cargo-mutants
test-mutants *ARGS:
    PODIUM_AUTHZ_CASES=20000 cargo mutants \
        -f "guest-sdk/vocabulary/src/authz/**" -f guest-sdk/wire/src/object.rs -f guest-sdk/wire/src/syntax.rs \
        --test-package podium-vocabulary,podium-wire {{ARGS}} -- --lib -- authz object syntax

# Faults that are put into the code on purpose, in files whose path contains PART: each turns a test red
test-seeded-faults PART="":
    PODIUM_SEEDED_FAULTS_IN={{PART}} \
        cargo test --workspace --test tidy -- --include-ignored --nocapture seeded_faults::

# Cache, queue, encoding and tombstones in N orders of their threads' steps; the publish path in every order
test-schedules N="10000000":
    PODIUM_SCHEDULES={{N}} cargo test --workspace --test schedules

# The fairness of the queue with KEYS due keys of one tenant, with its figures
test-fairness KEYS="1000000":
    PODIUM_BACKLOG={{KEYS}} cargo test -p podium-engine --lib -- queue::turns --nocapture

# Replicas with clocks of their own over one Lease, in SEEDS simulations of a minute with faults: one of them acts
test-leases SEEDS="1000000":
    PODIUM_LEASE_SEEDS={{SEEDS}} PODIUM_SHARDS_SEEDS=$(({{SEEDS}} / 500)) \
        cargo test -p podium-lease --lib -- no_two_replicas_act --nocapture

# Deletions of PODS Pods during runs on them, on several threads: each is delivered once, with the last state
test-deletions PODS="200000":
    PODIUM_DELETIONS={{PODS}} cargo test -p podium-engine --lib -- every_deletion_is_delivered_once

# The cache against exact lists of a real API server at this number of revisions, while hundreds of Pods come and go
test-churn COMPARISONS="1000":
    PODIUM_CLUSTER_TESTS=1 PODIUM_CHURN_COMPARISONS={{COMPARISONS}} \
        cargo test --workspace --test cluster -- the_cache_equals_an_exact_list

# Hostile components and configurations: each is contained and recorded, and a neighbour does not notice it
test-hostile *ARGS:
    cargo test --workspace --test hostile {{ARGS}}

# Each row of the hostile suite as PLUGINS plugins of a tenant, and of each of five, and all rows beside each other
test-hostile-many PLUGINS="100":
    PODIUM_HOSTILE_PLUGINS={{PLUGINS}} PODIUM_HOSTILE_ROWS=all cargo test --workspace --test hostile -- many::

# The same components in a release build, where a run limited to 20 ms uses at most 30: one table of time and memory
test-hostile-release:
    cargo test --release --workspace --test hostile -- in_the_sandbox

# 500 plugin objects of five tenants, with as many finalizers and references as fit, that change without a pause
test-crowd:
    PODIUM_CLUSTER_TESTS=1 cargo test --workspace --test cluster -- --include-ignored --nocapture crowd::

# A change of an input of a plugin with PODS Pods: how long until all of them are reconciled
test-inputs PODS="500":
    PODIUM_CLUSTER_TESTS=1 PODIUM_INPUT_PODS={{PODS}} \
        cargo test --workspace --test cluster -- --nocapture an_input_reaches_all_pods

# A plugin that runs for GROUPS workloads of PODS Pods: a rolling restart of all, and the ends of groups around kills
test-groups GROUPS="500" PODS="4":
    PODIUM_CLUSTER_TESTS=1 PODIUM_GROUPS={{GROUPS}} PODIUM_GROUP_PODS={{PODS}} \
        cargo test --workspace --test cluster -- --nocapture a_group_outlives

# podium-host killed TIMES times (SIGKILL) while Pods are deleted, 50 around each kill: every deletion is delivered
test-kills TIMES="20":
    PODIUM_CLUSTER_TESTS=1 PODIUM_KILLS={{TIMES}} cargo test --workspace --test cluster -- around_sigkills

# Two replicas, and three, in ROUNDS of faults of the one that acts while Pods come and go, with a table of take-overs
test-takeovers ROUNDS="100":
    PODIUM_CLUSTER_TESTS=1 PODIUM_TAKEOVER_ROUNDS={{ROUNDS}} PODIUM_STOP_SECONDS=60 \
        cargo test --workspace --test cluster -- --nocapture takeovers::

# podium-host on a network that is cut TIMES times without a notice to either side
test-cuts TIMES="200":
    PODIUM_CUTS={{TIMES}} cargo test --workspace --test cuts

# The cache while etcd forgets all history every second and connections are lost, TIMES times
test-compaction TIMES="200":
    PODIUM_CLUSTER_TESTS=1 PODIUM_COMPACTIONS={{TIMES}} cargo test --workspace --test cluster -- under_compaction

# The host behind a real API server whose responses are lost, conflict, say 429 or are slow, with PODS Pods
test-faults PODS="500":
    PODIUM_CLUSTER_TESTS=1 PODIUM_FAULTS={{PODS}} cargo test --workspace --test cluster -- faulty::

# podium-host on an API server that fails, while Pods come, change and go, for so long: flat memory, descriptors, tasks
test-soak SECONDS="7200":
    PODIUM_CLUSTER_TESTS=1 PODIUM_SOAK_SECONDS={{SECONDS}} \
        cargo test --workspace --test cluster -- memory_descriptors_and_tasks

# podium-host on a real API server where nothing happens to Pods, and much to everything else
test-idle SECONDS="3600":
    PODIUM_CLUSTER_TESTS=1 PODIUM_IDLE_SECONDS={{SECONDS}} \
        cargo test --workspace --test cluster -- with_idle_pods

# Random programs of host calls over random clusters: nothing of other tenants' Pods in any output, cost or request. The
# cases are those of the runs of one sandbox, 1,000 by default; the whole host has a thirtieth of them
test-taint CASES="1000000":
    PODIUM_TAINT_CASES={{CASES}} cargo test --workspace --test embedded -- taint::

# How well the processor time of runs distinguishes what other tenants have from what exists nowhere: figures of PROBES
# runs of each call and search, 0.5 is chance. All must stay within 0.05 of it
figures-timing PROBES="100000":
    PODIUM_TIMING_PROBES={{PROBES}} \
        cargo test --release --workspace --test embedded -- --include-ignored --nocapture --test-threads=1 timing::

# TIMES runs dropped at their await points, in the sandbox and on the whole way of a key: about ten minutes
test-cancel TIMES="100000":
    PODIUM_CANCELLATIONS={{TIMES}} cargo test --workspace --test embedded -- --nocapture cancel::

# podium-host stopped (SIGSTOP) for SECONDS while it has runs: it is healthy when it goes on, and no plugin is blamed
test-stops SECONDS="60":
    PODIUM_STOP_SECONDS={{SECONDS}} cargo test --workspace --test stops

# TIMES starts of the host while plugin objects change without a pause, and one plugin cannot be loaded
test-starts TIMES="2000":
    PODIUM_STARTS={{TIMES}} cargo test -p podium-host --lib -- starts_under_a_flood

# SWAPS runs that leave marks in their sandbox, each followed by a run that looks for them
test-residue SWAPS="1000000":
    PODIUM_SWAPS={{SWAPS}} cargo test --workspace --test embedded -- residue::

# N swaps of a plugin's code while Pods change: no key is lost, and a neighbour does not wait
test-swaps N="10000":
    PODIUM_PLUGIN_SWAPS={{N}} cargo test --workspace --test embedded -- many_swaps_under_load --nocapture

# FLIPS changed bytes in a file of compiled code, in each of its parts: none is used
test-cache-flips FLIPS="1000000":
    PODIUM_CACHE_FLIPS={{FLIPS}} cargo test --workspace --lib -- no_byte_of_any_part_of_a_file_can_change

# The fuzz targets of the sandbox on RUNS random inputs each, without libFuzzer
test-fuzz RUNS="100000" SEED="1":
    PODIUM_FUZZ_RUNS={{RUNS}} PODIUM_FUZZ_SEED={{SEED}} \
        cargo test --workspace --test embedded -- host_calls_with mutated_components

# A fuzz target (a file of tests/fuzz/targets) for SECONDS seconds; needs a C++ compiler
fuzz TARGET SECONDS="600" *ARGS:
    bash tests/fuzz/run.sh {{TARGET}} {{SECONDS}} {{ARGS}}

# Format, clippy, and the offline checks of dependencies
lint:
    bash .ci/run lint

# Release builds; figures on standard output
bench *ARGS:
    cargo bench --workspace {{ARGS}}

# The cache beside kube-rs and client-go: one table. Flags: --pods --events --rate --repeats --subjects --output json
bench-cache *ARGS:
    bash tests/bench/run.sh compare {{ARGS}}

# The queue of keys beside kube-rs' scheduler and client-go's workqueue: operations per second, bytes per key
bench-queue *ARGS:
    bash tests/bench/run.sh queue {{ARGS}}

# A new Pod on a real control plane from its event to its label: podium-host, its floor, kube-rs and controller-runtime
bench-load *ARGS:
    bash tests/bench/run.sh load {{ARGS}}

# Switches, system calls and bytes of podium-host per new Pod and idle second, beside those of tests/bench/cost.json
cost *ARGS:
    bash tests/bench/run.sh load --subjects podium --rates 20 --unconcerned 20 --pods 200 --idle 60 --repeats 3 \
        $(test ! -f tests/bench/cost.json || echo --against tests/bench/cost.json) {{ARGS}}

# The counts of tests/bench/allocations.json, from a run; one that has grown needs a text of the changelog
allocations:
    PODIUM_RENEW_ALLOCATIONS=1 cargo test --workspace --test allocations -- an_event

# The cost of a run, and of wasmtime without Podium: one table. Flags: --repeats --millis, and parts of names of cases
bench-runs *ARGS:
    cargo bench --workspace --bench runs -- {{ARGS}}

# A start with many plugins, compiled and from the cache of compiled code, and their memory: figures, no checks
figures-compile *ARGS:
    cargo test --workspace --test embedded -- --ignored --nocapture --test-threads=1 figures:: {{ARGS}}

# 500 plugin objects of 50 tenants on the real control plane, with a release build: start, requests, memory, p99
figures-plugins:
    cargo build --release --workspace --bin podium-host
    PODIUM_CLUSTER_TESTS=1 PODIUM_OBJECTS_HOST="$(realpath "${CARGO_TARGET_DIR:-target}")/release/podium-host" \
        cargo test --workspace --test cluster -- --ignored --nocapture five_hundred_plugins

# The Rust plugins as components, in target/plugins
build-plugins:
    for plugin in plugins/*/Cargo.toml; do \
        cargo podium build "$(dirname "$plugin")" \
            --out "target/plugins/$(basename "$(dirname "$plugin")" | tr - _).wasm"; \
    done

# The Python plugin as a component, in target/python-plugin
build-python:
    bash plugins/pod-age-python/build.sh

# The runner of scripts in Python, in target/python-runner
build-runner:
    sh guest-sdk/python/build.sh

# The JSON Schemas in docs and in the chart, from the types of the configuration, and the chart's defaults as JSON
schemas:
    PODIUM_RENEW_SCHEMAS=1 cargo test -p podium-config --lib -- checked_in
    cargo podium schema crds > deploy/chart/crds.yaml

# The container image of podium-host, in the storage of podman. Flags: --profile --binary --tag --archive
image *ARGS:
    bash deploy/image/build.sh {{ARGS}}

# Archives of podium, podium-host, runners and SDK for x86-64 and arm64, in target/dist. Flags: --targets --out
dist *ARGS:
    bash deploy/dist/build.sh {{ARGS}}

# The packages for crates.io, each built from its packed files; nothing is published
packages *ARGS:
    cargo publish --dry-run --workspace --locked {{ARGS}}

# The plain form of the chart in deploy/kustomize/base
manifests:
    PODIUM_CLUSTER_TESTS=1 PODIUM_RENEW_MANIFESTS=1 cargo test --workspace --test cluster -- the_kustomize_base_is

# All that CI runs
ci:
    bash .ci/run
