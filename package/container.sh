#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cay-container [OPTION]...: the entry point of the image: cay serve with these options, and with
# the key of E2B_API_KEY.  cay-container COMMAND...: another command.
set -eu
case ${1:-} in
-* | '') ;;
*) exec "$@" ;;
esac
if [ -n "${E2B_API_KEY:-}" ]; then
    key=$(mktemp) # mode 0600
    printf '%s\n' "$E2B_API_KEY" >"$key"
    unset E2B_API_KEY
    set -- --api-key-file "$key" "$@"
fi
# Sandboxes cannot outlive the container.
exec cay serve --listen 0.0.0.0:3000 --on-exit kill "$@"
