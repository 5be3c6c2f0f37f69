# SPDX-License-Identifier: Apache-2.0
"""cay._lib says the same as the headers, byte for byte."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CHECKOUT, unavailable

from cay import _lib, errors

INCLUDE = CHECKOUT / "include"

STRUCTS = {
    "cay_error": _lib.Error,
    "cay_mount": _lib.Mount,
    "cay_policy_config": _lib.PolicyConfig,
    "cay_approval": _lib.Approval,
    "cay_files_options": _lib.FilesOptions,
    "cay_derive": _lib.Derive,
    "cay_location": _lib.Location,
    "cay_strings": _lib.Strings,
    "cay_pin": _lib.Pin,
    "cay_read_options": _lib.ReadOptions,
    "cay_page": _lib.Page,
    "cay_read_item": _lib.ReadItem,
    "cay_write_options": _lib.WriteOptions,
    "cay_write_item": _lib.WriteItem,
    "cay_edit": _lib.Edit,
    "cay_edit_result": _lib.EditResult,
    "cay_name_options": _lib.NameOptions,
    "cay_stat": _lib.Stat,
    "cay_list_options": _lib.ListOptions,
    "cay_entry": _lib.Entry,
    "cay_listing": _lib.Listing,
    "cay_grep_options": _lib.GrepOptions,
    "cay_match": _lib.Match,
    "cay_matches": _lib.Matches,
    "cay_tar_options": _lib.TarOptions,
    "cay_tar_result": _lib.TarResult,
}

# Prefixes of the constants in C that _lib repeats under the same name.
CONSTANTS = re.compile(
    r"(STYLE|ACCESS|FILES|READONLY|VERDICT|READ|WRITE|EDIT|NAME|LIST|GREP)_[A-Z_]+|"
    r"NO_LIMIT|NOTE_MAX"
)


def run_c(tmp_path: Path, body: str) -> list[str]:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        unavailable("no C compiler")
    source = tmp_path / "abi.c"
    source.write_text(
        "#include <stdio.h>\n#include <stddef.h>\n#include <cay/files.h>\n"
        f"int main(void) {{\n{body}\nreturn 0; }}\n"
    )
    subprocess.run(
        [str(compiler), f"-I{INCLUDE}", "-o", tmp_path / "abi", source], check=True
    )
    return subprocess.run(
        [tmp_path / "abi"], check=True, capture_output=True, text=True
    ).stdout.split()


def test_structs_are_laid_out_as_in_c(tmp_path: Path) -> None:
    body, expected = [], []
    for name, mirror in STRUCTS.items():
        body.append(f'printf("%zu\\n", sizeof(struct {name}));')
        expected.append(f"{name}: {ctypes.sizeof(mirror)}")
        for member, *_ in mirror._fields_:
            what = f"struct {name}, {member}"
            size = f"sizeof(((struct {name} *)0)->{member})"
            body.append(f'printf("%zu+%zu\\n", offsetof({what}), {size});')
            field = getattr(mirror, member)
            expected.append(f"{name}.{member}: {field.offset}+{field.size}")
    found = run_c(tmp_path, "\n".join(body))
    names = [line.split(": ")[0] for line in expected]
    assert [f"{n}: {value}" for n, value in zip(names, found)] == expected


# Sandboxes are not in the package yet.
BOUND = [header for header in INCLUDE.glob("cay/*.h") if header.name != "sandbox.h"]


def test_every_struct_of_the_headers_is_mirrored() -> None:
    text = "".join(header.read_text() for header in BOUND)
    assert set(re.findall(r"^struct (\w+) \{", text, re.M)) == set(STRUCTS)


def test_constants_are_those_of_c(tmp_path: Path) -> None:
    names = [name for name in vars(_lib) if CONSTANTS.fullmatch(name)]
    assert len(names) > 30
    body = "\n".join(f'printf("%lld\\n", (long long)CAY_{name});' for name in names)
    found = run_c(tmp_path, body)
    assert dict(zip(names, map(int, found))) == {n: getattr(_lib, n) for n in names}


def test_numbered_names_are_those_of_c(tmp_path: Path) -> None:
    ops = {number: name.upper() for number, name in _lib.OPS.items()}
    types = {number: name.upper() for number, name in _lib.TYPES.items()}
    body = [f'printf("%d\\n", CAY_OP_{name});' for name in ops.values()]
    body += [f'printf("%d\\n", CAY_TYPE_{name});' for name in types.values()]
    assert list(map(int, run_c(tmp_path, "\n".join(body)))) == [*ops, *types]


def test_the_exceptions_are_those_of_the_header() -> None:
    listed = re.findall(
        r'X\((\w+), (-\d+), "([a-z-]+)",', (INCLUDE / "cay" / "error.h").read_text()
    )
    assert {int(code): slug for _, code, slug in listed} == {
        code: cls.slug for code, cls in errors.BY_CODE.items()
    }
    for name, code, _ in listed:
        camel = "".join(part.capitalize() for part in name.split("_"))
        assert errors.BY_CODE[int(code)].__name__ == camel


def test_every_function_of_the_headers_is_bound_or_left_out_knowingly() -> None:
    text = "".join(header.read_text() for header in BOUND)
    public = set(
        re.findall(r"\b(cay_[a-z_]+)\(", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    )
    bound = set(re.findall(r'"(cay_[a-z_]+)"', Path(_lib.__file__).read_text()))
    left_out = {
        "cay_code_exit",  # for the command
        "cay_code_slug",  # cay.errors knows the slugs
        "cay_files_check_size",  # Sandbox checks against the model it is given
        "cay_files_check_suffix",
        "cay_policy_load",  # configuration comes from the models
        "cay_policy_mount",
        "cay_policy_mount_count",
        "cay_policy_parse",
        "cay_policy_style",
    }
    assert public - bound == left_out


def test_the_version_is_the_librarys() -> None:
    import cay

    assert re.fullmatch(r"\d+\.\d+\.\d+", cay.__version__)
    with pytest.raises(AttributeError):
        cay.nothing  # type: ignore[attr-defined]  # noqa: B018
