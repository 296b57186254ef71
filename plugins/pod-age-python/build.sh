#!/bin/sh
# Tests and builds the plugin to target/python-plugin/pod_age_python.wasm, with the componentize-py of the runner of
# scripts. Where that cannot be had it says so and does nothing; in CI (the variable CI is set) that is a failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/python-plugin
# The interfaces of spec.grants in plugin.yaml: it stages writes and nothing else.
interfaces="writes"

componentize=$(sh "$root/guest-sdk/python/componentize.sh") || { [ $? = 3 ] && exit 0; exit 1; }
python=$(dirname "$componentize")/python

mkdir -p "$out/wit"
rm -rf "$out/bindings"
# shellcheck disable=SC2086 # a list of words
"$python" "$here/trim_wit.py" "$root/wit/podium.wit" $interfaces >"$out/wit/podium.wit"
"$componentize" --quiet -d "$out/wit" -w plugin-json bindings "$out/bindings"
PODIUM_REQUIRE_BINDINGS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here:$here/tests:$out/bindings" \
    "$python" -m unittest discover --start-directory "$here/tests"

# The component is built only from these two files: other files in the folder do not belong in it.
rm -rf "$out/app"
mkdir "$out/app"
cp "$here/app.py" "$here/age.py" "$out/app/"
"$componentize" --quiet -d "$out/wit" -w plugin-json \
    componentize app --python-path "$out/app" --stub-wasi --output "$out/pod_age_python.wasm"
echo "$out/pod_age_python.wasm"
