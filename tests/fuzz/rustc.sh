#!/usr/bin/env bash
# Cargo calls this instead of rustc. It instruments only the crates that read the fuzzer's input. If all crates were
# instrumented, the sandbox's compiler among them, libFuzzer would examine a million counters after each run.
shopt -s extglob
set -euo pipefail

coverage=-sanitizer-coverage
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=$coverage-level=4 -Cllvm-args=$coverage-inline-8bit-counters -Cllvm-args=$coverage-pc-table
    -Cllvm-args=$coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0
)
# Build scripts and macros are for no target, and nothing links what the flags ask for to them.
case " $* " in
*" --crate-name build_script_"*) ;;
*" --crate-name podium_"@(api|config|encoding|engine|host|pods)" "*" --target "* | \
    *" --crate-name podium_"@(runtime|tests|vocabulary|wire|writeback)" "*" --target "* | \
    *" --crate-name "@(bincode|granit_parser|jiff|serde_json|serde_saphyr)" "*" --target "*)
    set -- "$@" "${flags[@]}" ;;
esac
exec "$@"
