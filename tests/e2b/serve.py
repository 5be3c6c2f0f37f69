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
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(cay: str) -> Iterator[dict[str, str]]:
    """A server and the variables that it prints; it must exit with 0."""
    with tempfile.TemporaryDirectory(prefix="cay-serve-") as home:
        server = subprocess.Popen(
            [cay, "serve", "--listen", "127.0.0.1:0", "--on-exit", "kill"],
            env={**os.environ, "CAY_HOME": home}, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            exports = {}
            while "E2B_API_KEY" not in exports:
                line = server.stdout.readline()
                match = re.fullmatch(r"export (\w+)=(\S+)\n", line)
                assert match, f"unexpected line of the server: {line!r}"
                exports[match[1]] = match[2]
            yield exports
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait()
            server.stdout.close()
        assert status == 0, f"the server ends with {status}"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with serving(sys.argv[1]) as exports:
        return subprocess.run(sys.argv[2:], env={**os.environ, **exports},
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
