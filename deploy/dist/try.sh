#!/usr/bin/env bash
# Tries an archive as a new user would, in a container that has nothing but a shell, the libraries of the programs and
# the archive: no Rust, no Python, no checkout, no network. A plugin of each script language has its first effect on a
# Pod after two commands; the seconds of both are printed.
#
# usage: bash deploy/dist/try.sh ARCHIVE|DIRECTORY
#
# A DIRECTORY has the programs and the runners of an archive.
set -euo pipefail
from=${1:?usage: bash deploy/dist/try.sh ARCHIVE|DIRECTORY}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/opt/podium" "$root/home" "$root/tmp" "$root/bin"
if [ -d "$from" ]; then
    cp -R "$from/." "$root/opt/podium/"
else
    tar --extract --gzip --strip-components=1 --directory "$root/opt/podium" --file "$from"
fi
shell=$(readlink -f "$(command -v dash || command -v sh)")
install -D -m 755 "$shell" "$root/bin/sh"
programs="$root/opt/podium/podium $root/opt/podium/podium-host"
# shellcheck disable=SC2086 # one argument for each program
for library in $(ldd "$shell" $programs | grep -o '/[^ :]*' | sort -u); do
    case $library in
        "$root"*|"$shell") ;;
        *) install -D -m 755 "$library" "$root$library" ;;
    esac
done
mkdir -p "$root/proc"
# Programs find their files by /proc/self/exe.
inside() {
    unshare --map-root-user --mount --net --fork --kill-child sh -euc \
        'mount --rbind /proc "$1/proc"; exec env -i PATH=/opt/podium:/bin HOME=/home TMPDIR=/tmp \
            "$(command -v unshare)" --root="$1" --wd=/home /bin/sh -euc "$2"' - "$root" "$1"
}
inside 'podium --version; podium-host --version'
for language in js python; do
    began=$(date +%s%N)
    inside "podium new $language-plugin --lang $language && podium test $language-plugin"
    echo "$language: the first effect on a Pod after $((($(date +%s%N) - began) / 1000000)) ms and two commands"
done
