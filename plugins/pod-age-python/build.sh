#!/bin/sh
# Tests and builds the plugin to target/python-plugin/pod_age_python.wasm, with componentize-py in a virtual environment
# under target/. Where Python is missing it says so and does nothing; in CI (the variable CI is set) that is a failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
venv=$target/python-venv
out=$target/python-plugin
# The interfaces of spec.grants in plugin.yaml: it stages writes and nothing else.
interfaces="writes"
# Pinned: it brings the Python that runs inside the component.
version=0.25.1

if ! command -v python3 >/dev/null; then
    echo "pod-age-python: skipped, there is no python3" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
if ! "$venv/bin/componentize-py" --version 2>/dev/null | grep -qF "$version"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$version"
fi

mkdir -p "$out/wit"
rm -rf "$out/bindings"
# shellcheck disable=SC2086 # a list of words
"$venv/bin/python" "$here/trim_wit.py" "$root/wit/podium.wit" $interfaces >"$out/wit/podium.wit"
"$venv/bin/componentize-py" --quiet -d "$out/wit" -w plugin-json bindings "$out/bindings"
PODIUM_REQUIRE_BINDINGS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here:$here/tests:$out/bindings" \
    "$venv/bin/python" -m unittest discover --start-directory "$here/tests"

# The component is built only from these two files: other files in the folder do not belong in it.
rm -rf "$out/app"
mkdir "$out/app"
cp "$here/app.py" "$here/age.py" "$out/app/"
"$venv/bin/componentize-py" --quiet -d "$out/wit" -w plugin-json \
    componentize app --python-path "$out/app" --stub-wasi --output "$out/pod_age_python.wasm"
echo "$out/pod_age_python.wasm"
