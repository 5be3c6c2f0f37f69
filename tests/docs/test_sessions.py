# SPDX-License-Identifier: Apache-2.0
"""The commands and programs in the documents print what is shown (tests/cli has the manual)."""

import re
import sys
from pathlib import Path

import pages
import pytest


TOURS = ["README.md", "docs/file-tools.md"]  # pages with sessions of commands


@pytest.mark.parametrize("page", TOURS)
def test_the_commands_in_the_documents_print_what_is_shown(page: str, tmp_path: Path) -> None:
    commands = pages.sessions(page)
    assert commands
    shown, printed = "", ""
    for command in commands:
        prompt = f"$ {command.text}\n"
        shown += prompt + command.output
        printed += prompt + pages.run(["bash", "-c", command.text], tmp_path).stdout
    assert printed == shown


def programs(language: str, page: str) -> list[tuple[str, str]]:
    """Each program in a document with the output that is shown after it."""
    blocks = pages.blocks(page)
    return [(block.text, after.text) for block, after in zip(blocks, blocks[1:])
            if block.language == language and after.language == "text"]


def make_tour_folder(folder: Path, page: str) -> None:
    for command in pages.sessions(page):
        pages.run(["bash", "-c", command.text], folder)


@pytest.mark.parametrize("page", TOURS)
def test_the_python_of_a_tour_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    make_tour_folder(tmp_path, page)
    found = programs("python", page)
    assert found
    for program, output in found:
        assert pages.run([sys.executable, "-c", program], tmp_path).stdout == output


@pytest.mark.parametrize("page", ["docs/python.md", "docs/inspect.md", "docs/nexau.md"])
def test_the_python_in_the_documents_prints_what_is_shown(
        page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Inspect keeps notes there
    monkeypatch.setenv("CAY_HOME", str(tmp_path / "cay"))
    found = programs("python", page)
    assert found
    for program, output in found:
        assert pages.run([sys.executable, "-c", program], tmp_path).stdout == output


def install(folder: Path) -> str:
    """Installs below the folder; the answer makes a compiler and pkg-config find it."""
    done = pages.run(["meson", "install", "-C", str(pages.BUILD), "--no-rebuild", "--quiet",
                      "--destdir", str(folder)], folder)
    assert done.returncode == 0, done.stdout
    (config,) = folder.rglob("libcay.pc")
    return f"PKG_CONFIG_PATH={config.parent} PKG_CONFIG_SYSROOT_DIR={folder}"


def test_the_c_in_the_file_tools_page_compiles_and_prints_what_is_shown(tmp_path: Path) -> None:
    make_tour_folder(tmp_path, "docs/file-tools.md")
    (tmp_path / "installed").mkdir()
    installed = install(tmp_path / "installed")
    found = programs("c", "docs/file-tools.md")
    assert found
    for program, output in found:
        (tmp_path / "program.c").write_text(program)
        built = pages.run(["bash", "-c", "cc -Wall -Werror program.c -o program "
                           f"$({installed} pkg-config --cflags --libs libcay)"], tmp_path)
        assert built.returncode == 0, built.stdout
        assert pages.run(["./program"], tmp_path).stdout == output


def test_libcay_pc_requires_what_the_library_links() -> None:
    config = (pages.BUILD / "meson-private" / "libcay.pc").read_text()
    (required,) = re.findall(r"^Requires.private: (.*)$", config, re.MULTILINE)
    linked = pages.run(["readelf", "-d", str(pages.BUILD / "libcay.so")], pages.BUILD).stdout
    for name in required.split(", "):
        assert f"[lib{name.removeprefix('lib')}.so" in linked


def test_an_installed_library_is_made_known_to_the_loader() -> None:
    shown = pages.run(["make", "-n", "install", f"BUILD={pages.BUILD}"], pages.ROOT).stdout
    assert "ldconfig" in shown
