#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# uninstall.sh [--prefix DIRECTORY] [--force]: removes what install.sh installed there.
# Sandboxes of this user that run are printed, and nothing is removed; --force ends them.
set -eu
prefix=/usr/local force=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        prefix=${2:?"--prefix: no directory given"}
        shift
        ;;
    --force) force=yes ;;
    *)
        echo "usage: uninstall.sh [--prefix DIRECTORY] [--force]" >&2
        exit 2
        ;;
    esac
    shift
done
list=$prefix/share/cay/installed
if [ ! -f "$list" ]; then
    echo "uninstall.sh: $list is missing: cay is not installed in $prefix" >&2
    exit 1
fi

cay=$prefix/bin/cay
"$cay" pool stop --all >/dev/null 2>&1 || true
if [ -n "$("$cay" ls --all --quiet 2>/dev/null || true)" ]; then
    "$cay" ls --all
    if [ -z "$force" ]; then
        echo "uninstall.sh: these sandboxes run; end them with cay kill --all, or use --force" >&2
        exit 1
    fi
    "$cay" kill --all >/dev/null
fi

if [ -f /var/lib/cay/setup ]; then # only root can see it
    "$cay" setup --undo --yes
fi

directories=$(mktemp)
trap 'rm -f "$directories"' EXIT
grep '/$' "$list" | LC_ALL=C sort -r >"$directories" || true
grep -v '/$' "$list" | while read -r file; do
    rm -f "$file"
done
rm -f "$list"
while read -r directory; do
    rmdir "$directory" 2>/dev/null || true # another program uses it, too
done <"$directories"
home=${CAY_HOME:-${XDG_STATE_HOME:-${HOME:-~}/.local/state}/cay}
[ "$(id -u)" != 0 ] || home=${CAY_HOME:-/var/lib/cay}
echo "cay is removed; templates, sessions and disks stay in $home"
