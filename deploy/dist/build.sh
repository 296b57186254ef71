#!/usr/bin/env bash
# Builds the archives of a release: for each target one with `podium`, `podium-host`, the runners of scripts, the SDK
# and the software bill of materials, and SHA256SUMS. They need no checkout, and Rust for plugins in Rust only; programs
# link to glibc, in a version that is checked.
#
# Both targets are built on one machine: cargo-zigbuild links with the C compiler and the libraries of Zig, which has
# those of each version of glibc. Two builds of one commit in one directory have the same digests, as long as the runner
# of Python is not built again.
set -euo pipefail
umask 022
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The oldest distributions with it are RHEL 8 and Debian 10.
glibc=2.28
zig=0.17.1
zigbuild=0.24.1
targets="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu"
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
out=$target/dist/archives
krew=
usage="usage: bash deploy/dist/build.sh [--targets \"TARGET..\"] [--out DIR] [--krew URL]

  --targets \"TARGET..\"   Rust's names of the targets [default: $targets]
  --out DIR              where the archives are written [default: $out]
  --krew URL             also write podium.yaml there, the manifest for krew of archives that lie at this URL

Needs clang, binutils, git, jq, python3 with venv, and a connection for the tools, which are pinned."
while [ $# -gt 0 ]; do
    case $1 in
        --targets) targets=${2:?$usage}; shift 2 ;;
        --out) out=$(cd "$caller" && realpath --canonicalize-missing "${2:?$usage}"); shift 2 ;;
        --krew) krew=${2:?$usage}; shift 2 ;;
        --help) echo "$usage"; exit 0 ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
done
for program in clang git jq python3 readelf rustup; do
    command -v "$program" >/dev/null && continue
    echo "$program is missing: apt-get install --no-install-recommends binutils clang git jq python3-venv" >&2
    exit 1
done
# The SDK is that of the commit, and so are the names of the programs' version.
if [ -n "$(git status --porcelain)" ]; then
    echo "there are changes without a commit, which would be in a part of an archive only; commit or stash them" >&2
    exit 1
fi

venv=$target/dist/venv
installed() { "$venv/bin/pip" list --format freeze 2>/dev/null | grep -qxF "$1"; }
if ! { installed "ziglang==$zig" && installed "cargo-zigbuild==$zigbuild"; }; then
    echo "installing Zig $zig and cargo-zigbuild $zigbuild" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "ziglang==$zig" "cargo-zigbuild==$zigbuild"
fi
PATH=$venv/bin:$PATH
channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
# shellcheck disable=SC2086 # one argument for each target
rustup target add --toolchain "$channel" $targets wasm32-unknown-unknown

runners=$target/dist/runners
mkdir -p "$runners" "$out"
rm -f "$runners"/*.wasm "$out"/podium-*.tar.gz "$out/SHA256SUMS" "$out/podium.yaml"
cargo run --locked --package podium-cli --bin podium -- build guest-sdk/javascript \
    --out "$runners/javascript-1.wasm" --quiet >&2
cp "$(sh guest-sdk/python/build.sh)" "$runners/"

version=$(cargo metadata --locked --no-deps --format-version 1 |
    jq --raw-output '.packages[] | select(.name == "podium-host").version')
PODIUM_COMMIT=$(git rev-parse HEAD)
export PODIUM_COMMIT
seconds=$(git log -1 --format=%ct)
# Paths of this machine would be in the messages of panics.
export RUSTFLAGS="--remap-path-prefix=$PWD=/podium --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
# The SDK of plugins in Rust, and the crates below it, as a workspace of their own.
sdk=$context/sdk
mkdir -p "$sdk"
git archive HEAD LICENSE wit guest-sdk/Cargo.toml guest-sdk/README.md guest-sdk/src guest-sdk/wit guest-sdk/wire \
    guest-sdk/vocabulary guest-sdk/config |
    tar --extract --directory "$sdk" --exclude='*/tests' --exclude='*/tests.rs' --exclude='*/clippy.toml'
members='members = ["guest-sdk", "guest-sdk/config", "guest-sdk/vocabulary", "guest-sdk/wire"]'
awk -v members="$members" '/^members = \[/{print members; skip = 1} !skip{print} /^\]/{skip = 0}' \
    Cargo.toml >"$sdk/Cargo.toml"
cp Cargo.lock "$sdk/"
cargo check --manifest-path "$sdk/Cargo.toml" --package podium-sdk --target wasm32-unknown-unknown \
    --target-dir "$target/dist/sdk"
rm "$sdk/Cargo.lock"
for triple in $targets; do
    # Panics and profiles keep the names of functions.
    cargo zigbuild --locked --release --config 'profile.release.strip="debuginfo"' --target "$triple.$glibc" \
        --target-dir "$target/dist/build" --package podium-cli --bin podium --package podium-host --bin podium-host
    name=podium-$version-${triple%-unknown-linux-gnu}-linux
    mkdir -p "$context/$name/runners"
    for program in podium podium-host; do
        built=$target/dist/build/$triple/release/$program
        needed=$(readelf --version-info "$built" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
        if [ "$(printf '%s\n' "$needed" "GLIBC_$glibc" | sort -V | tail -1)" != "GLIBC_$glibc" ]; then
            echo "$built needs $needed, and may need GLIBC_$glibc at most" >&2
            exit 1
        fi
        echo "$program for $triple needs $needed"
        install -m 755 "$built" "$context/$name/"
    done
    # Beside the programs, where they look for them.
    install -m 644 "$runners"/*.wasm "$context/$name/runners/"
    install -m 644 LICENSE README.md "$context/$name/"
    # krew unpacks no links.
    cp -RL "$sdk" "$context/$name/sdk"
    PODIUM_SBOM_CRATES="podium-host podium-cli" PODIUM_SBOM_TARGET=$triple \
        bash deploy/image/sbom.sh "$version" "$runners" >"$context/$name/podium.cdx.json"
    tar --create --sort=name --mtime="@$seconds" --owner=0 --group=0 --numeric-owner --directory "$context" "$name" |
        gzip --no-name --best >"$context/$name.tar.gz"
done
mv "$context"/podium-*.tar.gz "$out/"
(cd "$out" && sha256sum podium-"$version"-*.tar.gz >SHA256SUMS && cat SHA256SUMS)
if [ -n "$krew" ]; then
    bash deploy/dist/krew.sh "$version" "$krew" "$out/SHA256SUMS" >"$out/podium.yaml"
fi
