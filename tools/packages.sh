# For the setup scripts, which source it: are programs there, and how do missing packages come?

has() {
    command -v "$1" >/dev/null 2>&1
}

# Installs Debian packages through apt-get, as root or through sudo; with none it does nothing.
# Everything that is printed goes to standard error.
install_packages() {
    [ $# -gt 0 ] || return 0
    if ! has apt-get; then
        echo "$0: this system has no apt-get. Please install what these packages hold: $*" >&2
        exit 1
    fi
    local as=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! has sudo; then
            echo "$0: please let root run: apt-get install --no-install-recommends $*" >&2
            exit 1
        fi
        as=(sudo)
    fi
    "${as[@]}" apt-get update -q >&2
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@" >&2
}
