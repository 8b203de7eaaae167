#!/usr/bin/env bash
# Installs what ptrail needs beyond Rust and git, on Debian and Ubuntu.
#
#   tools/setup.sh build    what a build needs: a C compiler, which cargo links with
#   tools/setup.sh test     what the tests need (the default): also compilers for the test programs,
#                           `perf` as the reference decoder, QEMU to record under, readelf and
#                           friends, and Perfetto's trace processor with the Node.js that it runs in
#
# Running it again does nothing; when everything is there it needs neither the network nor root.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=packages.sh
. "$root/tools/packages.sh"

# Does the compiler $1 find the file $2 of the C library? It prints the bare name of what it doesn't.
finds() {
    has "$1" && [ -f "$("$1" -print-file-name="$2")" ]
}

# On Ubuntu, `perf` is a wrapper that works only with the tools of the running kernel; any version
# decodes our files, so a link to the newest one stands in. `cargo xtask` has target/tools in PATH.
has_perf() {
    perf --version >/dev/null 2>&1 || "$root/target/tools/perf" --version >/dev/null 2>&1
}

link_perf() {
    local newest
    # `find` fails where there is no such folder, as on Debian.
    newest=$({ find /usr/lib/linux-tools* -name perf 2>/dev/null || true; } | sort -V | tail -n 1)
    [ -n "$newest" ] || return 0
    mkdir -p "$root/target/tools"
    ln -sf "$newest" "$root/target/tools/perf"
}

perf_package() {
    if grep -qE '^ID(_LIKE)?=.*ubuntu' /etc/os-release 2>/dev/null; then
        echo linux-tools-generic
    else
        echo linux-perf
    fi
}

# A compiler package alone brings no C library: that is only recommended.
missing_for_build() {
    has cc || echo gcc
    finds cc crt1.o || echo libc6-dev
}

# libc.a is for the programs that are linked statically.
missing_for_test() {
    has cc && has gcc || echo gcc
    has g++ || echo g++
    finds gcc libc.a || echo libc6-dev
    has readelf && has objdump && has nm && has strip || echo binutils
    compgen -G '/usr/lib/debug/.build-id/*/*.debug' >/dev/null || echo libc6-dbg
    has script || echo bsdutils
    has ps || echo procps
    has callgrind_annotate || echo valgrind
    has qemu-x86_64 || echo qemu-user
    has zstd || echo zstd
    # Its bindings are for the system's own Python.
    /usr/bin/python3 -c 'import bt2' 2>/dev/null || printf '%s\n' babeltrace2 python3-bt2
    has_perf || link_perf
    has_perf || perf_package
}

install_missing() {
    local list=$1 packages
    mapfile -t packages < <("$list")
    install_packages "${packages[@]}"
    mapfile -t packages < <("$list")
    if [ "${#packages[@]}" -gt 0 ]; then
        echo "$0: still missing after the installation: ${packages[*]}" >&2
        exit 1
    fi
}

# A minimal Rust toolchain comes without them. `cargo xtask ci` says so if they stay missing.
add_rust_components() {
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 && has rustup; then
        rustup component add rustfmt clippy || true
    fi
}

case "$#:${1:-test}" in
    [01]:build)
        install_missing missing_for_build
        ;;
    [01]:test)
        install_missing missing_for_test
        add_rust_components
        "$root/tools/consumers/setup.sh"
        ;;
    *)
        echo "usage: tools/setup.sh [build|test]" >&2
        exit 2
        ;;
esac
