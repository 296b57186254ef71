#!/usr/bin/env bash
# Prints the manifest by which krew installs an archive as `kubectl podium`.
# Arguments: the version, the URL of the folder of the archives, and their SHA256SUMS.
set -euo pipefail
version=$1 url=$2 sums=$3
cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: podium
spec:
  version: v$version
  shortDescription: Reconcilers for Pods as sandboxed WebAssembly
  description: |
    Writes, tests, deploys and explains plugins of Podium: reconcilers for Pods in Rust, JavaScript or Python.
  platforms:
END
while read -r sha256 archive; do
    name=${archive%.tar.gz}
    case $name in
        *-x86_64-linux) arch=amd64 ;;
        *-aarch64-linux) arch=arm64 ;;
        *) echo "$sums: $archive is of no known architecture" >&2; exit 1 ;;
    esac
    # With the runners and the SDK beside the program.
    cat <<END
    - selector:
        matchLabels: { os: linux, arch: $arch }
      uri: $url/$archive
      sha256: $sha256
      bin: $name/podium
END
done <"$sums"
