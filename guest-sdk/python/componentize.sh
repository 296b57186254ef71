#!/bin/sh
# Prints the path of componentize-py, which it installs into a virtual environment under target/ the first time. Exits
# with 3 where it cannot be had; in CI (the variable CI is set) that is a failure.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${CARGO_TARGET_DIR:-$root/target}/python-venv
# Pinned, with the hashes of its files for Linux and macOS: it brings the Python that runs inside components, as a
# prebuilt binary.
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
    "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes \
        --requirement /dev/stdin >&2 <<END || missing "it cannot be installed"
componentize-py==$version \\
    --hash=sha256:8623cd8cab8453cb0cd8bf03f3c7103420d06f2f3d360186a280a70a1ca5e89f \\
    --hash=sha256:7b6a87c520358166843af0daa86d2312d7af4cbcbbf1e598951085cf7f2991ca \\
    --hash=sha256:65fbc4a94df1de8acf7da50a1f5ed1711230188844e53e6332d99029be4e0afa \\
    --hash=sha256:a556991534cc496207a9d2ca733c4b0f17ed38ef56a8d6b5f1847fdf1225dd1b
END
fi
echo "$venv/bin/componentize-py"
