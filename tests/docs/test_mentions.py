# SPDX-License-Identifier: Apache-2.0
"""What the documents speak of exists."""

import re

import pages
import pytest

DOCUMENTS = sorted(str(path.relative_to(pages.ROOT)) for path in [
    *pages.ROOT.glob("*.md"), *(pages.ROOT / "docs").rglob("*.md"),
    *(pages.ROOT / "docs").glob("*.scd*")])


def declared() -> set[str]:
    headers = "".join(path.read_text() for path in (pages.ROOT / "include").rglob("*.h"))
    headers = re.sub(r"^#.*", "", headers, flags=re.M)
    return set(re.findall(r"\bCAY_PUBLIC\b[^;(]*?(\w+)\s*\(", headers))


def read(page: str) -> str:
    return (pages.ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_function_a_document_calls_is_there(page: str) -> None:
    sources = "".join(path.read_text() for folder in ("include", "src")
                      for path in (pages.ROOT / folder).rglob("*.h"))
    called = set(re.findall(r"\b(cay_\w+)\*?\(", read(page)))
    assert {name for name in called if name not in sources} == set()


def test_the_manual_of_the_library_names_every_public_function() -> None:
    manual = read("docs/libcay.3.scd")
    missing = {name for name in declared() if f"*{name}*()" not in manual}
    assert {name for name in missing if not name.endswith(("_free", "_done"))} == set()


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page.endswith(".md")])
def test_every_local_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", read(page))
    folder = (pages.ROOT / page).parent
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("page", sorted(
    str(path.relative_to(pages.ROOT)) for path in (pages.ROOT / "docs").glob("*.scd")))
def test_every_manual_page_that_is_referred_to_is_ours_or_the_systems(page: str) -> None:
    ours = {path.name.removesuffix(".in").removesuffix(".scd")
            for path in (pages.ROOT / "docs").glob("*.scd*")}
    for name, section in re.findall(r"\*(cay[\w-]*|libcay)\*\((\d)\)", read(page)):
        assert f"{name}.{section}" in ours


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) < 200
