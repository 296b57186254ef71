#!/bin/sh
# Builds the runner of scripts in Python, target/python-runner/python-1.wasm, if a source is newer, and prints its path.
# Exits with 3 where componentize-py cannot be had.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${CARGO_TARGET_DIR:-$root/target}/python-runner
component=$out/python-1.wasm

set -- "$here/podium.py" "$here/runner.py" "$here/clock.py" "$here/build.sh" "$here/componentize.sh" \
    "$root/wit/podium.wit"
if [ -f "$component" ] && [ -z "$(find "$@" -newer "$component")" ]; then
    echo "$component"
    exit 0
fi
componentize=$(sh "$here/componentize.sh")
mkdir -p "$out"
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/app"
cp "$here/podium.py" "$here/runner.py" "$here/clock.py" "$work/app/"
# Nothing of this machine but the three files: VIRTUAL_ENV would add the packages of an environment.
env -u VIRTUAL_ENV "$componentize" --quiet -d "$root/wit" -w script \
    componentize runner --python-path "$work/app" --stub-wasi --output "$work/python-1.wasm" >&2
mv "$work/python-1.wasm" "$component"
echo "$component"
