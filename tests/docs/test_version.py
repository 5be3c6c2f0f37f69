# SPDX-License-Identifier: Apache-2.0
"""Every part has the version of meson.build, and package/notes checks CHANGELOG.md."""

import os
import re
import shutil
import subprocess

import pages
import pytest
import yaml

ROOT = pages.ROOT
MESON = "project('cay', 'c',\n  version: '1.2.3',\n)\n"


def version():
    return re.search(r"^  version: '(\d+\.\d+\.\d+)'",
                     (ROOT / "meson.build").read_text(encoding="utf-8"), re.M)[1]


def test_meson_build_names_the_version_once():
    text = (ROOT / "meson.build").read_text(encoding="utf-8")
    assert text.count(version()) == 1


def test_the_description_of_the_server_has_the_version():
    document = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
    assert document["info"]["version"] == version()


@pytest.mark.parametrize("page", ["install", "container"])
def test_the_pages_name_the_image_of_the_version(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bcay:(\d[\d.]*\d)", text)) == {version()}


def test_the_library_has_the_major_version_in_its_soname():
    major = version().split(".", maxsplit=1)[0]
    meson = (ROOT / "meson.build").read_text(encoding="utf-8")
    assert re.search(r"soversion: '(\d+)'", meson)[1] == major
    assert (ROOT / "debian" / f"libcay{major}.install").exists()
    control = (ROOT / "debian" / "control").read_text(encoding="utf-8")
    assert f"\nPackage: libcay{major}\n" in control


def notes(tmp_path, changelog, *words):
    (tmp_path / "package").mkdir(exist_ok=True)
    for name in ("notes", "version"):
        shutil.copy(ROOT / "package" / name, tmp_path / "package")
    (tmp_path / "meson.build").write_text(MESON)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    return subprocess.run([tmp_path / "package" / "notes", *words], capture_output=True, text=True,
                          check=False)


def test_notes_prints_the_section_of_the_version(tmp_path):
    done = notes(tmp_path, "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-18\n\n"
                 "- Fast.\n\n## [1.2.2] - 2026-11-01\n\n- Slow.\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "- Fast.\n", "")


@pytest.mark.parametrize("changelog, problem", [
    ("## [1.2.3] - 2026-11-18\n\n- Fast.\n", "first section is not [Unreleased]"),
    ("## [Unreleased]\n\n- Fast.\n\n## [1.2.3] - 2026-11-18\n\n- Slow.\n", "lists changes"),
    ("## [Unreleased]\n", "newest version is not [1.2.3]"),
    ("## [Unreleased]\n\n## [1.2.2] - 2026-11-01\n\n- Slow.\n", "newest version is not [1.2.3]"),
    ("## [Unreleased]\n\n## [1.2.3]\n\n- Fast.\n", "has no date"),
    ("## [Unreleased]\n\n## [1.2.3] - soon\n\n- Fast.\n", "has no date"),
    ("## [Unreleased]\n\n## [1.2.3] - 2026-11-18\n\n", "lists no changes"),
])
def test_notes_refuses_a_changelog_that_does_not_describe_the_version(
        tmp_path, changelog, problem):
    done = notes(tmp_path, changelog)
    assert done.returncode == 1 and done.stdout == ""
    assert problem in done.stderr


def test_notes_moves_the_unreleased_changes_to_the_version(tmp_path):
    before = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Fast.\n"
    done = notes(tmp_path, before, "--write")
    assert (done.returncode, done.stderr) == (0, "")
    written = (tmp_path / "CHANGELOG.md").read_text()
    text = re.sub(r"\[1\.2\.3\] - \d{4}-\d\d-\d\d\n", "[1.2.3] - DAY\n", written)
    assert text == before.replace("### Added", "## [1.2.3] - DAY\n\n### Added")
    done = notes(tmp_path, written)
    assert (done.returncode, done.stdout) == (0, "### Added\n\n- Fast.\n")


@pytest.mark.parametrize("changelog, problem", [
    ("## [Unreleased]\n\n## [1.2.2] - 2026-11-01\n\n- Slow.\n", "lists no changes"),
    ("## [Unreleased]\n\n- Fast.\n\n## [1.2.3] - 2026-11-18\n\n- Slow.\n", "is released"),
])
def test_notes_moves_nothing_without_a_reason(tmp_path, changelog, problem):
    done = notes(tmp_path, changelog, "--write")
    assert done.returncode == 1 and problem in done.stderr
    assert (tmp_path / "CHANGELOG.md").read_text() == changelog


def make(*words, root):
    return subprocess.run(["make", "-s", "-C", ROOT, *words], capture_output=True, text=True,
                          env={**os.environ, "DESTDIR": str(root)}, check=False)


@pytest.fixture
def install_log():
    """Meson's list of what this build directory installed, put back afterwards."""
    log = pages.BUILD / "meson-logs" / "install-log.txt"
    before = log.read_bytes() if log.exists() else None
    yield log
    log.unlink(missing_ok=True)
    if before is not None:
        log.write_bytes(before)


def test_uninstall_removes_all_that_install_created(tmp_path, install_log):
    root = tmp_path / "root"
    root.mkdir()
    (root / "other").write_text("stays")
    installed = make("install", f"BUILD={pages.BUILD}", root=root)
    assert installed.returncode == 0, installed.stderr
    assert list(root.rglob("bin/cay")) and list(root.rglob("libcay.so.0"))
    removed = make("uninstall", f"BUILD={pages.BUILD}", root=root)
    assert removed.returncode == 0, removed.stderr
    assert [path.name for path in root.iterdir()] == ["other"]
    again = make("uninstall", f"BUILD={pages.BUILD}", root=root)
    assert again.returncode != 0 and "nothing was installed" in again.stderr
