# SPDX-License-Identifier: Apache-2.0
"""What docs/openapi.yaml says of the answers, compared with those that were given."""

import json
import re

import pytest
from serving import ROOT

# What any route may answer, as the description says; 499 is who has left.
ANYWHERE = {400, 401, 403, 413, 421, 431, 499, 503}


def responses():
    """(pattern of the path, {method: statuses}), those without parts that vary first."""
    yaml = pytest.importorskip("yaml")
    document = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    found = []
    for path in sorted(document["paths"], key=lambda path: "{" in path):
        item = document["paths"][path]
        found.append((re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), {
            method.upper(): set(map(int, item[method]["responses"]))
            for method in item if method != "parameters"}))
    return found


def undescribed(log):
    """(method, pattern, status) of the answers in a log that are not in the document."""
    known, missing = responses(), set()
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        item = next((item for item in known if item[0].fullmatch(entry["path"])), None)
        if "port" in entry or not item or entry["method"] not in item[1]:
            continue
        if entry["status"] not in item[1][entry["method"]] | ANYWHERE:
            missing.add((entry["method"], item[0].pattern, entry["status"]))
    return missing
