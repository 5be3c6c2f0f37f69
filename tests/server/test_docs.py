# SPDX-License-Identifier: Apache-2.0
"""The documents tell what the server does."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from serving import PATIENCE, ROOT


def test_the_curl_examples_work(server, tmp_path):
    page = (ROOT / "docs" / "from-e2b.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.split("## With curl")[1], re.M | re.S)
    assert len(blocks) == 2
    result = subprocess.run(["bash", "-euo", "pipefail", "-c", "".join(blocks)], cwd=tmp_path,
                            env={**os.environ, **server.exports}, capture_output=True, text=True,
                            timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr


def routes():
    """(method, path) of every handler in the source, with {} for what may vary."""
    found = set()
    for source in (ROOT / "src" / "server" / "front").glob("*.c"):
        text = source.read_text(encoding="utf-8")
        found.update(re.findall(r'(?:ON|PLAIN)\("(\w+)", "([^"]+)"', text))
        found.update(("GET", path) for path in re.findall(r'\bGET\("([^"]+)"', text))
        found.update(("POST", path) for path in re.findall(r'TIMEOUT\("([^"]+)"', text))
        found.update(re.findall(r'\.method = "(\w+)",\s+\.path = "(/[^"]+)"(?! name)', text))
        prefix = re.search(r'\.path = "(/\w+\.\w+/)" name', text)
        if prefix:
            found.update(("POST", prefix[1] + name) for name in
                         re.findall(r'(?:CALL|ROUTE)\("(\w+)"', text))
    return {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in found}


def test_every_route_is_described_and_no_other():
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    described = {(method.upper(), re.sub(r"\{\w+\}", "{}", path))
                 for path, item in document["paths"].items()
                 for method in item if method != "parameters"}
    assert described == routes()
    schemas = set(document["components"]["schemas"])
    used = set(re.findall(r"#/components/schemas/(\w+)", Path(
        ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8")))
    assert used <= schemas
