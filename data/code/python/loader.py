# SPDX-License-Identifier: Apache-2.0
import os
try:
    from _json import scanstring
except ImportError:
    from json.decoder import scanstring
line = b""
while line[-1:] != b"\n":
    block = os.read(3, 1 << 20)
    if not block:
        os._exit(0)
    line += block
line = line.decode()
exec(compile(scanstring(line, line.index('"source":"') + 10)[0], "<cay>", "exec"),
     {"__name__": "cay_driver", "START": line})
