#!/bin/sh
# Prints the path of componentize-py, which it installs into a virtual environment under target/ the first time. Exits
# with 3 where it cannot be had; in CI (the variable CI is set) that is a failure.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${CARGO_TARGET_DIR:-$root/target}/python-venv
# Pinned: it brings the Python that runs inside components, as a prebuilt binary.
version=0.25.1

missing() {
    echo "componentize-py: skipped, $1" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 3
}

command -v python3 >/dev/null || missing "there is no python3"
mkdir -p "$venv"
# Of several processes one installs it.
if command -v flock >/dev/null; then
    exec 9>"$venv.lock"
    flock 9
fi
if ! "$venv/bin/componentize-py" --version 2>/dev/null | grep -qF "$version"; then
    python3 -m venv "$venv" >&2 || missing "python3 has no venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$version" >&2 ||
        missing "it cannot be installed"
fi
echo "$venv/bin/componentize-py"
