# SPDX-License-Identifier: Apache-2.0
"""What the files of the dashboard may contain: no way from a text to a script."""

import re

import pytest
from serving import ROOT

FOLDER = ROOT / "data" / "ui"
SOURCES = sorted(FOLDER.glob("*.js"))
# Ways in which a text becomes markup or code
PARSERS = (r"\b(?:inner|outer)HTML\b|\binsertAdjacentHTML\b|\bsetHTML\w*\b|\bdocument\.write|\bDOMParser\b|\bsrcdoc\b"
           r"|\bcreateContextualFragment\b|\beval\s*\(|\bnew\s+Function\b|javascript:|\bset(?:Timeout|Interval)\s*\(\s*[\"'`]")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_module_never_parses_text_as_markup_or_code(path):
    found = [(number, line.strip()) for number, line in enumerate(path.read_text().splitlines(), 1)
             if re.search(PARSERS, line)]
    assert found == []


def test_modules_import_only_files_of_the_folder_and_names_that_these_export():
    exports = {}
    for path in SOURCES:
        text = path.read_text()
        exports[path.name] = set(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.M))
    for path in SOURCES:
        for names, source in re.findall(r'^import \{([^}]*)\} from "([^"]+)";', path.read_text(), re.M):
            target = FOLDER / source
            assert source.startswith("./") and target.is_file(), f"{path.name} imports {source}"
            if target.parent == FOLDER:
                missing = {name.strip() for name in names.split(",") if name.strip()} - exports[target.name]
                assert not missing, f"{path.name} imports {missing} from {source}"
        assert not re.search(r'\bimport\s*\(|from "https?:', path.read_text()), path.name


def test_the_page_has_no_inline_script_or_style_and_names_only_own_files():
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
    assert not re.search(r"<style|\sstyle=|\son\w+=", text)
    for name in re.findall(r'(?:src|href)="([^"#]+)"', text):
        assert (FOLDER / name).is_file(), name


def test_files_of_others_come_with_their_licence():
    licence = (FOLDER / "vendor" / "LICENSE").read_text()
    copyright_file = (ROOT / "debian" / "copyright").read_text()
    assert "Permission is hereby granted, free of charge" in licence
    assert "Files: data/ui/vendor/*" in copyright_file
    for path in (FOLDER / "vendor").iterdir():
        assert path.name == "LICENSE" or path.name in licence, path.name
