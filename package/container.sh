#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cay-container [OPTION]...: the entry point of the image: cay serve with these options, and with
# the key of E2B_API_KEY, the name (--node) of the pod CAY_POD, and the directory CAY_SHARED (--shared).
# cay-container COMMAND...: another command.
set -eu

# letter N: the letter after N others.
letter() {
    # shellcheck disable=SC2059 # the format is the letter's number
    printf "\\$(printf %o $((97 + $1)))"
}

# node POD: the node's name of the pod of a StatefulSet.  cay-0 is naaa, cay-1 naab, cay-26 naba.
node() {
    number=${1##*-}
    case $number in
    '' | *[!0-9]* | 0[0-9]* | ??????*) number=17576 ;;
    esac
    case ${CAY_CELL:-n} in
    [a-z2-7]) ;;
    *) number=17576 ;;
    esac
    if [ "$number" -ge 17576 ]; then
        echo "cay-container: CAY_POD=$1, CAY_CELL=${CAY_CELL:-n}: give a name that ends in a number" \
            "below 17576, and one of the letters a-z and 2-7" >&2
        return 2
    fi
    printf %s "${CAY_CELL:-n}"
    letter $((number / 676))
    letter $((number / 26 % 26))
    letter $((number % 26))
}

case ${1:-} in
-* | '') ;;
*) exec "$@" ;;
esac
if [ -n "${CAY_POD:-}" ]; then
    name=$(node "$CAY_POD")
    set -- --node "$name" "$@"
fi
if [ -n "${E2B_API_KEY:-}" ]; then
    key=$(mktemp) # mode 0600
    printf '%s\n' "$E2B_API_KEY" >"$key"
    unset E2B_API_KEY
    set -- --api-key-file "$key" "$@"
fi
# Kubernetes makes volumes that all users can write to.
if [ -n "${CAY_SHARED:-}" ]; then
    (umask 077 && mkdir -p "$CAY_SHARED")
    set -- --shared "$CAY_SHARED" "$@"
fi
home=${CAY_HOME:-/var/lib/cay}
if [ "$(id -u)" = 0 ] && [ -d "$home" ]; then # else cay creates it
    chmod 0700 "$home"
fi
# The kernel mounts a new /proc in a user namespace only if a /proc without masks is there.  With
# CAP_SYS_ADMIN this is one; without, sandboxes have the level that --require-level checks.
{ mkdir -p /run/cay-proc && mount -t proc -o nosuid,nodev,noexec proc /run/cay-proc; } 2>/dev/null || :
# Sandboxes cannot outlive the container.
exec cay serve --listen 0.0.0.0:3000 --on-exit kill "$@"
