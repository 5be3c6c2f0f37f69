#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cay serve`, for the tests of the e2b backend: our client against our server.

    serve.py CAY COMMAND...   runs the command with E2B_API_URL and so on set

The server has a home of its own, and ends its sandboxes when it ends.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile


def start(cay, home):
    """The server, and what it says is to be exported."""
    server = subprocess.Popen(
        [cay, "serve", "--listen", "127.0.0.1:0", "--on-exit", "kill"],
        env={**os.environ, "CAY_HOME": home}, stdout=subprocess.PIPE, text=True)
    exports = {}
    while len(exports) < 3:
        line = server.stdout.readline()
        match = re.fullmatch(r"export (\w+)=(\S+)\n", line)
        if not match:
            raise SystemExit(f"serve.py: the server says {line!r}")
        exports[match[1]] = match[2]
    return server, exports


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cay-serve-") as home:
        server, exports = start(sys.argv[1], home)
        try:
            status = subprocess.run(sys.argv[2:], env={**os.environ, **exports},
                                    check=False).returncode
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait()
        return status or ended


if __name__ == "__main__":
    sys.exit(main())
