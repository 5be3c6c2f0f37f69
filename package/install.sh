#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh [--prefix DIRECTORY]: installs cay, in /usr/local if no directory is given.
# DIRECTORY/share/cay/installed lists the files, and the directories that were created.
set -eu
umask 022 # users run what root installs
export LC_ALL=C
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
*[!A-Za-z0-9/._+@,~-]*) # the unit of systemd has it, without quotes
    echo "install.sh: --prefix: \"$prefix\" has other characters than A-Z a-z 0-9 / . _ + @ , ~ -" >&2
    exit 2
    ;;
/*) ;;
*)
    echo "install.sh: --prefix: \"$prefix\" is not an absolute path" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"

list=$prefix/share/cay/installed
work=$(mktemp -d)
touch "$work/old" "$work/new"
[ ! -f "$list" ] || cp "$list" "$work/old"

# Also after a failure, uninstall.sh finds everything.
finish() {
    [ ! -d "$prefix/share/cay" ] || sort -u "$work/old" "$work/new" >"$list"
    rm -rf "$work"
}
trap finish EXIT

make_directory() {
    [ ! -d "$1" ] || return 0
    make_directory "$(dirname "$1")"
    mkdir "$1"
    echo "$1/" >>"$work/new"
}

files="$(find bin lib libexec share -type f | sort) share/cay/uninstall.sh"
for file in $files; do
    echo "$prefix/$file" >>"$work/new"
done
# Files that only an earlier version has.  The directories stay in the list.
grep -v '/$' "$work/old" | grep -vxF -f "$work/new" | while read -r file; do
    rm -f "$file"
done
grep '/$' "$work/old" >"$work/directories" || true
mv "$work/directories" "$work/old"

make_directory "$prefix/share/cay"
for file in $files; do
    make_directory "$(dirname "$prefix/$file")"
    # A program that runs cannot be written to: it is replaced.
    temporary=$prefix/$file.new
    case $file in
    */uninstall.sh) cp uninstall.sh "$temporary" ;;
    */cay.service) sed "s|^ExecStart=[^ ]*|ExecStart=$prefix/bin/cay|" "$file" >"$temporary" ;;
    *) cp "$file" "$temporary" ;;
    esac
    mv -f "$temporary" "$prefix/$file"
done
echo "cay is $prefix/bin/cay; remove it with $prefix/share/cay/uninstall.sh --prefix $prefix"
