# SPDX-License-Identifier: Apache-2.0
"""The bindings in cay._c match the headers, byte for byte."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CHECKOUT, unavailable

from cay import _c, errors

INCLUDE = CHECKOUT / "include"

STRUCTS = {
    "cay_error": _c.Error,
    "cay_mount": _c.Mount,
    "cay_policy_config": _c.PolicyConfig,
    "cay_approval": _c.Approval,
    "cay_files_options": _c.FilesOptions,
    "cay_derive": _c.Derive,
    "cay_location": _c.Location,
    "cay_strings": _c.Strings,
    "cay_pin": _c.Pin,
    "cay_read_options": _c.ReadOptions,
    "cay_page": _c.Page,
    "cay_read_item": _c.ReadItem,
    "cay_write_options": _c.WriteOptions,
    "cay_write_item": _c.WriteItem,
    "cay_edit": _c.Edit,
    "cay_edit_result": _c.EditResult,
    "cay_name_options": _c.NameOptions,
    "cay_stat": _c.Stat,
    "cay_list_options": _c.ListOptions,
    "cay_entry": _c.Entry,
    "cay_listing": _c.Listing,
    "cay_grep_options": _c.GrepOptions,
    "cay_match": _c.Match,
    "cay_matches": _c.Matches,
    "cay_tar_options": _c.TarOptions,
    "cay_tar_result": _c.TarResult,
    "cay_bind": _c.Bind,
    "cay_secret": _c.Secret,
    "cay_header": _c.Header,
    "cay_sandbox_options": _c.SandboxOptions,
    "cay_network_config": _c.NetworkConfig,
    "cay_network_limits": _c.NetworkLimits,
    "cay_network_query": _c.NetworkQuery,
    "cay_network_answer": _c.NetworkAnswer,
    "cay_network_rule": _c.NetworkRule,
    "cay_network_counts": _c.NetworkCounts,
    "cay_network_event": _c.NetworkEvent,
    "cay_checkpoint": _c.Checkpoint,
    "cay_checkpoint_options": _c.CheckpointOptions,
    "cay_ended": _c.Ended,
    "cay_rollback": _c.Rollback,
    "cay_rollback_options": _c.RollbackOptions,
    "cay_enforced": _c.Enforced,
    "cay_sandbox_info": _c.SandboxInfo,
    "cay_exec_options": _c.ExecOptions,
    "cay_exec_result": _c.ExecResult,
    "cay_process_info": _c.ProcessInfo,
    "cay_template_options": _c.TemplateOptions,
    "cay_template_info": _c.TemplateInfo,
    "cay_build_options": _c.BuildOptions,
    "cay_build_progress": _c.BuildProgress,
    "cay_check": _c.Check,
    "cay_field": _c.Field,
    "cay_backend": _c.Backend,
    "cay_command_options": _c.CommandOptions,
    "cay_command_result": _c.CommandResult,
    "cay_code_result": _c.CodeResult,
    "cay_code_part": _c.CodePart,
    "cay_code_value": _c.CodeValue,
    "cay_code_options": _c.CodeOptions,
    "cay_code_execution": _c.CodeExecution,
    "cay_context_info": _c.ContextInfo,
    "cay_context_infos": _c.ContextInfos,
    "cay_context_options": _c.ContextOptions,
    "cay_saved_context": _c.SavedContext,
    "cay_warm_info": _c.WarmInfo,
    "cay_content": _c.Content,
    "cay_file_info": _c.FileInfo,
    "cay_file_infos": _c.FileInfos,
    "cay_transfer": _c.Transfer,
    "cay_pool_options": _c.PoolOptions,
    "cay_pool_stats": _c.PoolStats,
    "cay_pool_info": _c.PoolInfo,
    "cay_snapshot_options": _c.SnapshotOptions,
    "cay_snapshot_info": _c.SnapshotInfo,
    "cay_volume_options": _c.VolumeOptions,
    "cay_volume_info": _c.VolumeInfo,
    "cay_diff_options": _c.DiffOptions,
    "cay_try_options": _c.TryOptions,
    "cay_try_info": _c.TryInfo,
    "cay_apply_options": _c.ApplyOptions,
    "cay_applied": _c.Applied,
    "cay_session": _c.Session,
    "cay_request": _c.Request,
    "cay_pending": _c.Pending,
    "cay_manager_options": _c.ManagerOptions,
}

NOT_MIRRORED = {
    "cay_attributes",  # for the server
    "cay_webhook",  # for the command
    "cay_install_options",  # for the command
    "cay_change",  # of diffs, which Python takes as JSON
    "cay_change_side",
    "cay_diff_layer",
    "cay_diff_tree",
    "cay_file_backend",  # tables that only backends written in C have
    "cay_process_backend",
    "cay_port",  # of cay port and cay forward
    "cay_pending_files",  # of cay approve
    "cay_pending_rule",  # of the server
    "cay_profile",  # of cay agent
    "cay_tree_result",  # of what is done inside libcay
}

# Prefixes of the constants in C that are repeated under the same name.
CONSTANTS = re.compile(
    r"(STYLE|ACCESS|FILES|READONLY|VERDICT|READ|WRITE|EDIT|NAME|LIST|GREP|EXEC|COMMAND)"
    r"_[A-Z_]+|[A-Z]+_(DEFAULT|CHARS)|NO_LIMIT|NOTE_MAX|ID_MAX|LAYERS_MAX"
)

# What C numbers and Python names: the prefix in C, and the names by number.
NUMBERED = {
    "OP": _c.OPS,
    "TYPE": _c.TYPES,
    "LAYER": _c.LAYERS,
    "NETWORK": _c.NETWORKS,
    "EVENT": _c.NETWORK_EVENTS,
    "REACH": _c.REACHES,
    "STORAGE": _c.STORAGES,
    "LEVEL": _c.LEVELS,
    "STATE": _c.STATES,
    "CAUSE": _c.CAUSES,
    "TEMPLATE": _c.TEMPLATE_SOURCES,
    "FINDING": _c.FINDINGS,
    "FIELD": _c.FIELD_TYPES,
    "STATUS": _c.STATUSES,
}


def run_c(tmp_path: Path, body: str) -> list[str]:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        unavailable("no C compiler")
    source = tmp_path / "abi.c"
    source.write_text(
        "#include <stdio.h>\n#include <stddef.h>\n#include <cay/approval.h>\n#include <cay/code.h>\n#include <cay/pool.h>\n#include <cay/session.h>\n#include <cay/snapshot.h>\n#include <cay/try.h>\n#include <cay/volume.h>\n"
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


HEADERS = "".join(header.read_text() for header in INCLUDE.glob("cay/*.h"))
MODULES = (
    _c.agent, _c.approval, _c.code, _c.config, _c.files, _c.library, _c.pool, _c.sandbox, _c.session, _c.snapshot,
    _c.trial, _c.volume,
)


def test_every_struct_of_the_headers_is_mirrored() -> None:
    assert (
        set(re.findall(r"^struct (\w+) \{", HEADERS, re.M)) == set(STRUCTS) | NOT_MIRRORED
    )


def test_constants_are_those_of_c(tmp_path: Path) -> None:
    ours = {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if CONSTANTS.fullmatch(name)
    }
    assert len(ours) > 35
    body = "\n".join(f'printf("%lld\\n", (long long)CAY_{name});' for name in ours)
    assert dict(zip(ours, map(int, run_c(tmp_path, body)))) == ours


def test_numbered_names_are_those_of_c(tmp_path: Path) -> None:
    body, expected = [], []
    for prefix, names in NUMBERED.items():
        for number, name in names.items():
            constant = f"CAY_{prefix}_{name.upper().replace('-', '_')}"
            body.append(f'printf("%d\\n", (int){constant});')
            expected.append(number)
        declared = set(re.findall(rf"\bCAY_{prefix}_([A-Z_]+) ?=", HEADERS))
        assert {name.upper().replace("-", "_") for name in names.values()} >= declared
    assert list(map(int, run_c(tmp_path, "\n".join(body)))) == expected


def test_the_exceptions_are_those_of_the_header() -> None:
    listed = re.findall(
        r'X\((\w+), (-\d+), "([a-z-]+)",', (INCLUDE / "cay" / "error.h").read_text()
    )
    assert {int(code): slug for _, code, slug in listed} == {
        code: cls.slug for code, cls in errors.BY_CODE.items()
    }
    names = [cls.__name__ for cls in errors.BY_CODE.values()]
    assert len(set(names)) == len(names) == len(listed)


def test_every_function_of_the_headers_is_bound_or_left_out_knowingly() -> None:
    code = re.sub(r"/\*.*?\*/", "", HEADERS, flags=re.S)
    public = set(re.findall(r"\b(cay_[a-z_]+)\(", code))
    sources = "".join(Path(str(module.__file__)).read_text() for module in MODULES)
    bound = set(re.findall(r'"(cay_[a-z_]+)"', sources))
    left_out = {
        "cay_backend_at",  # for the command
        "cay_backend_check",  # for the command; who starts one is told
        "cay_backend_load",  # a configuration does it
        "cay_code_exit",  # for the command
        "cay_code_slug",  # cay.errors knows the slugs
        "cay_command_configure",  # BackendSandbox has the fields itself
        "cay_config_boolean",  # cay_config_json() tells all of them
        "cay_config_field",
        "cay_context_language",  # the error of a wrong one lists them
        "cay_config_integer",
        "cay_config_number",
        "cay_config_peek",  # for the command
        "cay_config_policy",
        "cay_config_schema",  # for the command
        "cay_pending_approve",  # for cay approve
        "cay_pending_request",
        "cay_pending_check",
        "cay_pending_notify",  # for cay approve notify
        "cay_pending_use",  # for the server
        "cay_pending_list_rules",
        "cay_pending_remove_rule",
        "cay_policy_network_approval",  # for the command
        "cay_sandbox_pass_egress",  # cay approve watch does it
        "cay_profile_free",  # for cay agent
        "cay_profile_list",
        "cay_profile_load",
        "cay_diff_changes",  # Python takes them as JSON
        "cay_diff_compare",
        "cay_diff_measure",
        "cay_sandbox_diff",
        "cay_sandbox_diff_checkpoints",
        "cay_sandbox_rollback",
        "cay_template_install",  # for the command
        "cay_files_access",  # for what is done inside libcay
        "cay_files_check_size",  # Sandbox checks against the model it is given
        "cay_files_check_suffix",
        "cay_files_copy_tree",
        "cay_files_descriptor",  # for the server
        "cay_files_read_link",
        "cay_files_read_to",
        "cay_files_reserve",  # for the server
        "cay_files_set_attributes",  # for the server
        "cay_files_write_from",
        "cay_layer_slug",  # cay._c has the names
        "cay_pool_id",  # shared pools are for the command
        "cay_pool_list",
        "cay_pool_stop",
        "cay_pool_wait_stop",
        "cay_manager_add_asset",  # cay.nexau.base has them for every session manager
        "cay_manager_is_running",
        "cay_manager_pause_no_wait",
        "cay_manager_run_done",
        "cay_manager_start",
        "cay_manager_start_no_wait",
        "cay_manager_wait",
        "cay_policy_mount",  # configuration comes from the models
        "cay_policy_mount_count",
        "cay_policy_parse",
        "cay_policy_style",
        "cay_process_skip",  # for the server
        "cay_level_slug",
        "cay_sandbox_add_ports",  # for the command
        "cay_sandbox_backend",  # its class says it
        "cay_sandbox_dial",  # for the server
        "cay_sandbox_fork",  # Sandbox.fork() creates one at a time
        "cay_sandbox_get_note",  # for the server
        "cay_sandbox_kill_many",  # for the command
        "cay_sandbox_list_brief",  # for the command
        "cay_sandbox_list_ports",  # for the command
        "cay_sandbox_set_note",  # for the server
        "cay_sandbox_collect_one",  # for the server
        "cay_sandbox_exec",  # a process that is waited for does it, and can be stopped
        "cay_sandbox_options_free",  # cay.Sandbox has options of its own
        "cay_sandbox_options_new",
        "cay_sandbox_run",  # for the command
        "cay_sandbox_tidy",  # for the command
        "cay_status_slug",  # cay._c has the names
        "cay_volume_is_source",  # a Path is always a path
        "cay_volume_open",  # Sandbox.create() does it
    }
    assert public - bound == left_out


def test_functions_take_as_many_arguments_as_in_c() -> None:
    code = re.sub(r"/\*.*?\*/|^#.*?$", "", HEADERS, flags=re.S | re.M)
    prototypes = dict(re.findall(r"\b(cay_\w+)\(([^()]*)\);", code))
    assert len(prototypes) > 70
    for module in MODULES:
        for function in vars(module).values():
            name = getattr(function, "__name__", "")
            if isinstance(function, ctypes._CFuncPtr) and name in prototypes:  # type: ignore[attr-defined]
                listed = prototypes[name]
                count = 0 if listed.strip() == "void" else listed.count(",") + 1
                assert len(function.argtypes or ()) == count, name


def test_the_version_is_the_librarys() -> None:
    import cay

    assert re.fullmatch(r"\d+\.\d+\.\d+", cay.__version__)
    with pytest.raises(AttributeError):
        cay.nothing  # type: ignore[attr-defined]  # noqa: B018
