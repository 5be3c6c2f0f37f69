#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh [--prefix DIRECTORY]: installs cay, in /usr/local if no directory is given.
# DIRECTORY/share/cay/installed lists the files, and the directories that were created.
set -eu
prefix=/usr/local
case $#,${1:-} in
0,) ;;
2,--prefix) prefix=$2 ;;
*)
    echo "usage: install.sh [--prefix DIRECTORY]" >&2
    exit 2
    ;;
esac
case $prefix in
/*) ;;
*)
    echo "install.sh: --prefix: \"$prefix\" is not an absolute path" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"

list=$prefix/share/cay/installed
new=$(mktemp)
trap 'rm -f "$new"' EXIT
# Directories that an earlier installation created are still to be removed with cay.
[ ! -f "$list" ] || grep '/$' "$list" >"$new" || true

make_directory() {
    [ ! -d "$1" ] || return 0
    make_directory "$(dirname "$1")"
    mkdir "$1"
    echo "$1/" >>"$new"
}

for file in $(find bin lib libexec share -type f | LC_ALL=C sort) share/cay/uninstall.sh; do
    make_directory "$(dirname "$prefix/$file")"
    # A program that runs cannot be written to: it is replaced.
    temporary=$prefix/$file.new
    case $file in
    */uninstall.sh) cp uninstall.sh "$temporary" ;;
    */cay.service) sed "s|^ExecStart=[^ ]*|ExecStart=$prefix/bin/cay|" "$file" >"$temporary" ;;
    *) cp "$file" "$temporary" ;;
    esac
    mv -f "$temporary" "$prefix/$file"
    echo "$prefix/$file" >>"$new"
done
cp "$new" "$list"
chmod 644 "$list"
echo "cay is $prefix/bin/cay; remove it with $prefix/share/cay/uninstall.sh --prefix $prefix"
