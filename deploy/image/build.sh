#!/usr/bin/env bash
# Builds the container image of podium-host, from this repository and from packages of the Debian machine that it runs
# on. There is no base image: the image has the program, the shared libraries that it links, the runners of scripts, and
# CA certificates.
#
# Two builds of one commit on one machine have the same digest, as long as the runner of Python is not built again:
# componentize-py keeps a seed of its build in it. Libraries and certificates come from the machine, so
# other machines may build another one; the software bill of materials names the versions.
set -euo pipefail
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

profile=release
binary=${PODIUM_IMAGE_BINARY:-}
runners=${PODIUM_IMAGE_RUNNERS:-}
tag=localhost/podium-host:dev
archive=
usage="usage: bash deploy/image/build.sh [--profile NAME | --binary FILE] [--runners DIR] [--tag NAME]
           [--archive FILE]

  --profile NAME   Cargo profile of the build [default: $profile]
  --binary FILE    a program that was built before [env: PODIUM_IMAGE_BINARY]
  --runners DIR    runners of scripts that were built before; an image has those that are there
                   [env: PODIUM_IMAGE_RUNNERS]
  --tag NAME       name of the image in the local storage of buildah and podman [default: $tag]
  --archive FILE   also write the image to a file, as an OCI archive"
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=${2:?$usage}; shift 2 ;;
        --binary) binary=${2:?$usage}; shift 2 ;;
        --runners) runners=${2:?$usage}; shift 2 ;;
        --tag) tag=${2:?$usage}; shift 2 ;;
        --archive) archive=${2:?$usage}; shift 2 ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
done

for program in buildah jq dpkg-query ldd strip; do
    command -v "$program" >/dev/null && continue
    echo "$program is missing: apt-get install --no-install-recommends binutils buildah ca-certificates jq" >&2
    exit 1
done
if [ -z "$runners" ]; then
    packages="apt-get install --no-install-recommends clang python3-venv"
    command -v "${CC_wasm32_unknown_unknown:-clang}" >/dev/null ||
        { echo "clang is missing, for the runner of JavaScript: $packages" >&2; exit 1; }
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        { echo "python3 has no venv, for the runner of Python: $packages" >&2; exit 1; }
fi
# Those of the package, without any that the machine's administrator added.
certificates=$(dpkg-query --listfiles ca-certificates 2>/dev/null | grep '\.crt$' | LC_ALL=C sort || true)
[ -n "$certificates" ] || { echo "apt-get install --no-install-recommends ca-certificates" >&2; exit 1; }

revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
target=${CARGO_TARGET_DIR:-target}
if [ -z "$binary" ]; then
    # Paths of this machine would be in panic messages, and would change the digest. The flags differ from those of
    # other builds, so these have a directory of their own.
    cargo_home=${CARGO_HOME:-$HOME/.cargo}
    PODIUM_COMMIT=$revision RUSTFLAGS="--remap-path-prefix=$PWD=/podium --remap-path-prefix=$cargo_home=/cargo" \
        cargo build --locked --profile "$profile" --package podium-host --bin podium-host --target-dir "$target/image"
    directory=$profile
    [ "$profile" = dev ] && directory=debug
    binary=$target/image/$directory/podium-host
fi
if [ -z "$runners" ]; then
    runners=$target/image/runners
    mkdir -p "$runners"
    cargo run --locked --profile "$profile" --package podium-cli --bin podium --target-dir "$target/image" -- \
        build guest-sdk/javascript --target-dir "$target/image" --out "$runners/javascript-1.wasm" --quiet >&2
    # Fails where componentize-py cannot be had.
    python=$(sh guest-sdk/python/build.sh)
    cp "$python" "$runners/"
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
root=$context/root
mkdir -p "$root"
# Copies a file to the same path in the image. The path may be a link, and the loader looks for it by this name.
add() { install -D -m "$1" "$2" "$root$2"; }

# Panics keep the names of functions.
install -D -m 755 "$binary" "$root/usr/bin/podium-host"
strip --strip-debug "$root/usr/bin/podium-host"
# Where podium-host looks for it without a flag.
for runner in "$runners"/*.wasm; do
    [ ! -f "$runner" ] || install -D -m 644 "$runner" "$root/usr/bin/runners/${runner##*/}"
done
# Every absolute path that ldd prints: of libraries, and of the loader itself.
libraries=$(ldd "$binary" | grep -o '/[^ ]*' | sort -u)
for library in $libraries; do
    add 755 "$library"
done
# shellcheck disable=SC2086 # one argument for each file
cat $certificates | install -D -m 644 /dev/stdin "$root/etc/ssl/certs/ca-certificates.crt"
# Names are resolved by the files that the kubelet writes, and then by DNS; both are in libc.
echo 'hosts: files dns' | install -D -m 644 /dev/stdin "$root/etc/nsswitch.conf"
echo 'podium:x:65532:65532::/:/usr/sbin/nologin' | install -D -m 644 /dev/stdin "$root/etc/passwd"
echo 'podium:x:65532:' | install -D -m 644 /dev/stdin "$root/etc/group"

version=$(cargo metadata --locked --no-deps --format-version 1 |
    jq --raw-output '.packages[] | select(.name == "podium-host").version')
seconds=$(git log -1 --format=%ct 2>/dev/null || echo 0)
sbom=$target/image/podium-host.cdx.json
mkdir -p "$target/image"
# shellcheck disable=SC2086 # one argument for each library
bash deploy/image/sbom.sh "$version" "$runners" $libraries ${certificates%%$'\n'*} >"$sbom"
install -D -m 644 "$sbom" "$root/usr/share/sbom/podium-host.cdx.json"

# All files have the time of the commit: those of this machine would change the digest.
buildah build --quiet --isolation chroot --identity-label=false --timestamp "$seconds" --format oci --layers=false \
    --file deploy/image/Containerfile --build-arg VERSION="$version" --build-arg REVISION="$revision" \
    --tag "$tag" "$context" >"$context/id"
if [ -n "$archive" ]; then
    buildah push --quiet "$tag" "oci-archive:$archive:$tag"
fi
echo "image $tag"
echo "id sha256:$(sed 's/^sha256://' "$context/id")"
echo "sbom $sbom"
