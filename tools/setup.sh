#!/usr/bin/env bash
# Installs what the tests need beyond Rust and git, on Debian and Ubuntu: compilers for the test
# programs, `perf` as the reference decoder, readelf and friends, and Perfetto's trace processor.
#
#   tools/setup.sh
#
# Running it again does nothing; when everything is there it needs neither the network nor root.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export DEBIAN_FRONTEND=noninteractive

has() {
    command -v "$1" >/dev/null 2>&1
}

# The C library as an archive, for the programs that are linked statically.
has_static_libc() {
    has gcc && [ -f "$(gcc -print-file-name=libc.a)" ]
}

# On Ubuntu, `perf` is a wrapper that works only with the tools of the running kernel; any version
# decodes our files, so a link to the newest one stands in. `cargo xtask` has target/tools in PATH.
has_perf() {
    perf --version >/dev/null 2>&1 || "$root/target/tools/perf" --version >/dev/null 2>&1
}

link_perf() {
    local newest
    newest=$(find /usr/lib/linux-tools* -name perf \( -type f -o -type l \) 2>/dev/null | sort -V | tail -n 1)
    [ -n "$newest" ] || return 0
    mkdir -p "$root/target/tools"
    ln -sf "$newest" "$root/target/tools/perf"
}

perf_package() {
    if grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; then
        echo linux-tools-generic
    else
        echo linux-perf
    fi
}

missing_packages() {
    has gcc || echo gcc
    has g++ || echo g++
    has_static_libc || echo libc6-dev
    has readelf || echo binutils
    has_perf || perf_package
    has node || echo nodejs
    if ! { has python3 && python3 -m pip --version >/dev/null 2>&1; }; then
        echo python3-pip
    fi
}

install_packages() {
    if ! has apt-get; then
        echo "tools/setup.sh: this system has no apt-get. Please install what these packages hold: $*" >&2
        exit 1
    fi
    local as=()
    [ "$(id -u)" -eq 0 ] || as=(sudo)
    "${as[@]}" apt-get update -q
    "${as[@]}" env DEBIAN_FRONTEND="$DEBIAN_FRONTEND" \
        apt-get install -y -q --no-install-recommends "$@"
}

# A minimal Rust toolchain comes without them. `cargo xtask ci` says so if they stay missing.
add_rust_components() {
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 && has rustup; then
        rustup component add rustfmt clippy || true
    fi
}

has_perf || link_perf
mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" -gt 0 ]; then
    install_packages "${packages[@]}"
fi
has_perf || link_perf
add_rust_components

mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "tools/setup.sh: still missing after the installation: ${missing[*]}" >&2
    exit 1
fi

if [ -x "$root/tools/consumers/setup.sh" ]; then
    "$root/tools/consumers/setup.sh"
fi
