#!/usr/bin/env bash
# Prints the software bill of materials of the image as CycloneDX JSON: the crates that are linked into podium-host and
# the runners of scripts, with the checksums of Cargo.lock, and the packages of the distribution that the other files
# come from. RUNNERS is the directory of the runners. PODIUM_SBOM_CRATES has other crates than podium-host, and
# PODIUM_SBOM_TARGET another target than this machine's.
#
# usage: bash deploy/image/sbom.sh VERSION RUNNERS FILE..
set -euo pipefail
version=$1
runners=$2
shift 2

# Name, version, licence and path of each crate that is linked; not of build scripts and tests.
crates() {
    local host
    host=${PODIUM_SBOM_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
    {
        for package in ${PODIUM_SBOM_CRATES:-podium-host}; do
            linked "$package" "$host"
        done
        if [ -f "$runners/javascript-1.wasm" ]; then
            linked podium-javascript wasm32-unknown-unknown
            # The C sources in rquickjs-sys, which are no crates of their own.
            quickjs
        fi
        if [ -f "$runners/python-1.wasm" ]; then
            # The package that brings CPython as a prebuilt binary.
            sed -n 's/^version=\(.*\)/componentize-py v\1|Apache-2.0 WITH LLVM-exception/p' \
                guest-sdk/python/componentize.sh
            cpython
        fi
    } | sort -u
}

linked() {
    cargo tree --locked --package "$1" --edges normal,no-proc-macro --target "$2" \
        --prefix none --no-dedupe --format '{p}|{l}'
}

# QuickJS, in the form of the lines of crates.
quickjs() {
    local manifest
    manifest=$(cargo metadata --locked --format-version 1 |
        jq --raw-output '.packages[] | select(.name == "rquickjs-sys").manifest_path')
    awk '/define QJS_VERSION_(MAJOR|MINOR|PATCH) /{v = v sep $3; sep = "."} END{print "quickjs-ng v" v "|MIT"}' \
        "$(dirname "$manifest")/quickjs/quickjs.h"
}

# CPython, in the same form. The runner has the text of sys.version.
cpython() {
    local version
    version=$(LC_ALL=C grep --text --only-matching '3\.[0-9]*\.[0-9a-z]* ([^)]*) \[Clang' "$runners/python-1.wasm" |
        sed -n '1s/ .*//p')
    [ -n "$version" ] || { echo "$runners/python-1.wasm has no version of Python" >&2; return 1; }
    echo "cpython v$version|Python-2.0.1"
}

# `name version checksum` of each package of the lock file that has a checksum.
checksums() {
    awk -F '"' '/^name = /{name=$2} /^version = /{version=$2} /^checksum = /{print name, version, $2}' Cargo.lock
}

# The package that a file is of. The loader may be known by the path behind a link, and dpkg by the one before it.
package() {
    local path
    for path in "$1" "$(readlink -f "$1")" "/usr$1" "$(readlink -f "$1" | sed 's|^/usr||')"; do
        dpkg-query --search "$path" 2>/dev/null | sed 's/:.*//' | head -1 | grep . && return 0
    done
    echo "no package has $1" >&2
    return 1
}

packages() {
    local file
    for file in "$@"; do
        package "$file"
    done | sort -u | while read -r name; do
        dpkg-query --show --showformat='${Package}|${Version}|${Architecture}\n' "$name" | head -1
    done
}

distribution=$(. /etc/os-release && echo "$ID-$VERSION_ID")
jq --null-input --sort-keys --arg version "$version" --arg distribution "$distribution" \
    --arg crates "$(crates)" --arg checksums "$(checksums)" --arg packages "$(packages "$@")" '
def lines: split("\n") | map(select(. != ""));
($checksums | lines | map(split(" ") | {key: "\(.[0]) \(.[1])", value: .[2]}) | from_entries) as $sums
| {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: { component: { type: "application", name: "podium-host", version: $version, "bom-ref": "podium-host" } },
    components: (
        ($crates | lines | map(split("|") | (.[0] | split(" ")) as $id | ($id[1] | ltrimstr("v")) as $at
            | { type: "library", name: $id[0], version: $at,
                purl: (if $id[0] == "quickjs-ng" then "pkg:github/quickjs-ng/quickjs@v\($at)"
                    elif $id[0] == "cpython" then "pkg:github/python/cpython@v\($at)"
                    elif $id[0] == "componentize-py" then "pkg:pypi/componentize-py@\($at)"
                    else "pkg:cargo/\($id[0])@\($at)" end) }
            + (if .[1] == "" or .[1] == null then {} else { licenses: [{ expression: .[1] }] } end)
            + ($sums["\($id[0]) \($at)"] as $sum
                | if $sum then { hashes: [{ alg: "SHA-256", content: $sum }] } else {} end))
            | map(select(.name != "podium-host")))
        + ($packages | lines | map(split("|")
            | { type: "library", name: .[0], version: .[1],
                purl: "pkg:deb/debian/\(.[0])@\(.[1] | @uri)?arch=\(.[2])&distro=\($distribution)" }))
        | unique_by(.purl) | map(. + { "bom-ref": .purl })
    )
}'
