# SPDX-License-Identifier: Apache-2.0
"""Backends of one's own in the command."""

import os
import re
import subprocess
from pathlib import Path

from conftest import CAY, PATIENCE

LIBRARY = Path(CAY).resolve().parent / "docs" / "examples" / "folder.so"


def test_a_backend_that_is_loaded_works_with_the_library_of_the_command(tmp_path):
    """It is linked with libcay.so, whose handles and registry would be others."""
    (tmp_path / "cay.yaml").write_text(f"library: {LIBRARY}\nprefix: folders\n")
    done = subprocess.run([CAY, "config", "check", "--load", "cay.yaml"], cwd=tmp_path, text=True,
                          capture_output=True, timeout=PATIENCE, check=True,
                          env={**os.environ, "LD_DEBUG": "bindings"})
    bound = re.findall(r"binding file \S*folder\.so \[0\] to (\S+) \[0\]: \w+ symbol `(cay_\w+)'",
                       done.stderr)
    assert {"cay_config_text", "cay_sandbox_create", "cay_files_delete"} <= {
        name for _, name in bound}
    assert {Path(file).name for file, name in bound if name != "cay_backend_entry"} == {
        Path(CAY).name}
