# SPDX-License-Identifier: Apache-2.0
"""src/code/pack, which the build uses."""

import json
import subprocess
from pathlib import Path

PACK = Path(__file__).resolve().parents[2] / "src" / "code" / "pack"


def test_the_first_line_of_a_driver_is_json_with_its_sources(tmp_path):
    texts = {"core": 'a = "\\n" & \'&\'\n\tb = "\\\\"\n', "show": "é = '\\u1234'  # \U0001f600\n"}
    for name, text in texts.items():
        tmp_path.joinpath(f"{name}.py").write_text(text, encoding="utf-8")
    files = [tmp_path / f"{name}.py" for name in texts]
    line = subprocess.run([PACK, *files], check=True, stdout=subprocess.PIPE).stdout
    assert line.index(b"\n") == len(line) - 1
    assert json.loads(line) == {
        "type": "start", "source": texts["core"], "parts": {"show": texts["show"]}}
