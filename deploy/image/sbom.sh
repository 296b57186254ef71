#!/usr/bin/env bash
# Prints the software bill of materials of the image as CycloneDX JSON: the crates that are linked into podium-host,
# with the checksums of Cargo.lock, and the packages of the distribution that the other files come from.
#
# usage: bash deploy/image/sbom.sh VERSION FILE..
set -euo pipefail
version=$1
shift

# Name, version, licence and path of each crate that is linked; not of build scripts and tests.
crates() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo tree --locked --package podium-host --edges normal,no-proc-macro --target "$host" \
        --prefix none --no-dedupe --format '{p}|{l}' | sort -u
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
            | { type: "library", name: $id[0], version: $at, purl: "pkg:cargo/\($id[0])@\($at)" }
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
