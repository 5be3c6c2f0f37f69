# SPDX-License-Identifier: Apache-2.0
"""What the documents speak of exists."""

import re
from pathlib import Path

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


def anchors(text: str) -> set[str]:
    """The names that headings of Markdown get."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def dead_links(text: str, folder: Path, name: str) -> list[str]:
    dead = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = folder / (path or name)
        if not target.exists() or (anchor and target.suffix == ".md" and
                                   anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page.endswith(".md")])
def test_every_local_link_leads_somewhere(page: str) -> None:
    path = pages.ROOT / page
    assert dead_links(read(page), path.parent, path.name) == []


def test_a_link_without_target_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A page\n\n## Behind `nginx`, or not\n\n```sh\n# code\n```\n")
    text = "[1](a.md) [2](b.md) [3](a.md#behind-nginx-or-not) [4](#code) [5](https://example.com/x)"
    assert dead_links(text, tmp_path, "a.md") == ["b.md", "#code"]


def test_every_page_is_linked_from_another() -> None:
    linked = {(pages.ROOT / page).parent.joinpath(link).resolve()
              for page in DOCUMENTS if page.endswith(".md")
              for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", read(page))}
    assert [page for page in DOCUMENTS if re.fullmatch(r"docs/[\w-]+\.md", page)
            and (pages.ROOT / page).resolve() not in linked] == []


@pytest.mark.parametrize("page", sorted(
    str(path.relative_to(pages.ROOT)) for path in (pages.ROOT / "docs").glob("*.scd")))
def test_every_manual_page_that_is_referred_to_is_ours_or_the_systems(page: str) -> None:
    ours = {path.name.removesuffix(".in").removesuffix(".scd")
            for path in (pages.ROOT / "docs").glob("*.scd*")}
    for name, section in re.findall(r"\*(cay[\w-]*|libcay)\*\((\d)\)", read(page)):
        assert f"{name}.{section}" in ours


def test_the_first_screen_of_the_readme_has_the_line_of_the_install_page() -> None:
    line = re.search(r"^\| pip \| `([^`]+)` \|", read("docs/install.md"), re.M)
    assert line and f"    {line[1]} " in "".join(read("README.md").splitlines(True)[:20])


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) < 200
