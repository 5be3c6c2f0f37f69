# SPDX-License-Identifier: Apache-2.0
"""cay config: what a file says, or what is wrong with it."""

import json
import os
import re
import subprocess

import jsonschema
import pytest
import yaml
from conftest import CAY, PATIENCE, ROOT
from test_manual import blocks, page, transcripts

SCHEMA = ROOT / "data" / "cay-config.schema.json"


@pytest.fixture
def config(tmp_path):
    """Runs `cay config WORDS...` in a folder with the text as cay.yaml."""
    def run(*words, text=None, **environ):
        if text is not None:
            (tmp_path / "cay.yaml").write_text(text)
        return subprocess.run([CAY, "config", *words], cwd=tmp_path, capture_output=True,
                              text=True, timeout=PATIENCE, env={**os.environ, **environ},
                              check=False)
    return run


def check(config, text, *options, **environ):
    done = config("check", "-o", "json", *options, "cay.yaml", text=text, **environ)
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def rows(done):
    assert (done.returncode, done.stderr) == (0, ""), done
    lines = [line.split(None, 2) for line in done.stdout.splitlines()]
    assert lines[0] == ["KEY", "FROM", "VALUE"]
    return {key: (source, value) for key, source, value in lines[1:]}


# --- check ---


def test_what_was_understood_is_told(config, tmp_path):
    (tmp_path / "manual").mkdir()
    found = rows(config("check", "cay.yaml", TOKEN="hush", text="""\
limits: {memory: 1.5 GiB}
envs: {KEY: "${env.TOKEN}", EMPTY: ""}
require: [seccomp]
policy:
  paths:
    docs: {root: manual}
"""))
    assert found["type"] == ("default", "native")
    assert found["limits.memory"] == ("file", str(3 << 29))
    assert found["limits.pids"] == ("default", "512")
    assert found["envs.KEY"] == ("file", "${env.TOKEN}")
    assert found["envs.EMPTY"] == ("file", '""')
    assert found["require[0]"] == ("file", "seccomp")
    assert found["policy.paths.docs.root"] == ("file", str(tmp_path / "manual"))
    assert found["status_after_run"] == ("default", "pause")
    assert "sandbox_id" not in found


def test_json_is_a_configuration_again(config):
    once = check(config, "limits: {memory: 512M, pids: '7'}\nttl: 2.5\nnetwork: host\n")
    assert once == {"type": "native", "limits": {"memory": 512 << 20, "pids": 7}, "ttl": 2.5,
                    "network": "host"}
    assert check(config, json.dumps(once)) == once


def test_what_a_terminal_would_obey_is_not_printed(config):
    done = config("check", "cay.yaml", text='envs: {"a\\eb": "\\e[2J"}\n')
    assert done.returncode == 0 and "\x1b" not in done.stdout
    done = config("check", "cay.yaml", text='"\\e[2J": 3\n')
    assert done.returncode == 2 and "\x1b" not in done.stderr


@pytest.mark.parametrize("text, message", [
    ("limits:\n  memry: 3\n", "line 2: limits.memry: unknown key (did you mean memory?"),
    ("tmplate: x\n", "line 1: tmplate: unknown key (did you mean template?"),
    ("type: natve\n", "line 1: type: unknown backend (did you mean native?"),
    ("user: ${env.CAY_TEST_UNSET}\n",
     "line 1: user: the environment variable CAY_TEST_UNSET is not set ("),
    ("network: maybe\n", "line 1: network: invalid choice (the choices are none, host, rules, open)"),
    ("policy:\n  paths:\n    a: {root: b, mode: x}\n",
     "line 3: policy.paths.a.mode: must be ro or rw ("),
    ("user: a\nuser: b\n", "line 2: user: is given twice (already set in line 1"),
    ("a: [\n", "line 2: "),
    ("", "line 1: the text is empty ("),
])
def test_an_error_names_file_line_and_key(config, text, message):
    done = config("check", "cay.yaml", text=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"cay: invalid: cay.yaml: {message}")
    assert done.stderr.count("\n") == 1
    as_json = config("check", "-o", "json", "cay.yaml")
    error = json.loads(as_json.stderr)["error"]
    assert (as_json.returncode, error["slug"], error["subject"]) == (2, "invalid", "cay.yaml")


def test_a_file_that_is_not_there_has_a_status_of_its_own(config):
    assert config("check", "none.yaml").returncode == 4
    assert config("check", ".").returncode == 24
    assert config("check").returncode == 2
    assert config("check", "a", "b").returncode == 2


@pytest.mark.parametrize("text, status, message", [
    ("limits: {memory: 64M, disk: 128M}\n", 2, "disk: the disk limit is larger than the memory limit"),
    ("storage: disk\nlimits: {disk: 1M}\n", 2, "disk: invalid size limit on disk (use 16 MiB"),
    ("template: no-such\n", 4, "no-such: there is no such template (available templates"),
    ("template: /no/such\n", 4, "/no/such: this directory cannot be used as a template"),
    ("mounts: ['/no/such:/inside']\n", 4, "/no/such: cannot open the mount source"),
    ("mounts: [somewhere]\n", 2, "somewhere: invalid mount (use /SRC:/DST"),
    ("require: [secomp]\n", 2, "secomp: unknown isolation layer (use one of"),
    ("ttl: 0\n", 2, "ttl: invalid time to live"),
    ("work_dir: somewhere\n", 2, "somewhere: invalid default user or working"),
    ("paths: {docs: {root: none}}\n", 4, "docs: cay.yaml:1: paths.docs: "),
    ("{type: local, ttl: -1}\n", 2, "ttl: invalid time to live"),
])
def test_what_making_it_would_refuse_is_refused(config, text, status, message):
    done = config("check", "cay.yaml", text=text)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert re.match(r"cay: [a-z-]+: cay\.yaml: \S*" + re.escape(message), done.stderr), done.stderr


def test_a_check_makes_nothing(config, tmp_path):
    check(config, "paths: {new: {root: deep/below, mode: rw, write_approval: false}}\n")
    assert not (tmp_path / "deep").exists()


def test_a_policy_is_a_configuration(config, tmp_path):
    (tmp_path / "docs").mkdir()
    path = {"root": str(tmp_path / "docs"), "mode": "rw", "write_approval": True,
            "read_approval": False}
    below = {"type": "native", "policy": {"paths": {"docs": path}}}
    text = "paths:\n  docs: {root: docs, mode: rw}\n"
    assert check(config, text) == below
    assert check(config, "policy: {paths: {docs: {root: docs, mode: rw}}}\n") == below
    done = config("check", "cay.yaml", text=text + "limits: {memory: 1G}\n")
    assert "line 3: limits: unknown key (the keys here are root, paths, mounts, network)" in done.stderr
    assert check(config, "mounts: [{host_path: docs, mount_point: /docs}]\n")["policy"]
    assert check(config, f"mounts: ['{tmp_path}/docs:/docs']\n")["mounts"]


def test_a_full_disk_is_told(config, tmp_path):
    (tmp_path / "cay.yaml").write_text("{}")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([CAY, "config", "check", "cay.yaml"], cwd=tmp_path, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 11 and "standard output" in done.stderr


def test_an_agents_file_is_local_unless_it_says_otherwise(config):
    assert check(config, """\
name: my_agent
llm_config:
  model: gpt-4

sandbox_config:
  type: local
  _work_dir: /path/to/working/directory # Optional, default to current directory
  persist_sandbox: true  # Optional, default to true. If false, sandbox is destroyed after agent.run
""") == {"type": "local", "work_dir": "/path/to/working/directory", "persist_sandbox": True}
    assert check(config, "name: my_agent\nsandbox_config: {}\n") == {"type": "local"}


# --- A backend of one's own ---


@pytest.fixture
def library():
    """What docs/examples/backend-shared is built to."""
    return os.path.join(os.path.dirname(os.path.abspath(CAY)), "docs", "examples", "folder.so")


def test_a_library_brings_its_own_keys(config, library, tmp_path):
    (tmp_path / "folder.so").symlink_to(library)
    text = "sandbox_config:\n  library: folder.so\n  prefix: /tmp\n"
    assert check(config, text, "--load") == {
        "type": "folder", "library": str(tmp_path / "folder.so"), "prefix": "/tmp"}
    text = "type: folder\nprefix: /tmp\nlibrary: ./folder.so\n"
    assert check(config, text, "--load")["prefix"] == "/tmp"
    done = config("check", "--load", "cay.yaml", text="prefx: /tmp\nlibrary: folder.so\n")
    assert "line 1: prefx: unknown key (did you mean prefix?" in done.stderr
    done = config("check", "--load", "cay.yaml", text="type: other\nlibrary: folder.so\n")
    assert "line 1: type: unknown backend (the backends are " in done.stderr
    assert "folder" in done.stderr


def test_a_library_may_stand_beside_a_backend_of_ours(config, library):
    found = check(config, f"type: native\nlibrary: {library}\nuser: me\n")
    assert (found["type"], found["user"]) == ("native", "me")


def test_nobodys_code_runs_unless_asked(config, library, tmp_path):
    text = f"library: {library}\nprefx: {{a: [b]}}\nenvs: {{A: b}}\nclean_output: yes\n"
    done = config("check", "-o", "json", "cay.yaml", text=text, LD_DEBUG="files")
    assert done.returncode == 0 and "folder.so" not in done.stderr, done.stderr
    assert ("cay: note: the library was not loaded, so its keys were not checked and are not "
            "shown (--load runs its code)") in done.stderr.splitlines()
    assert json.loads(done.stdout) == {"library": library, "envs": {"A": "b"},
                                       "clean_output": True}
    assert "folder.so" in config("check", "--load", "cay.yaml", LD_DEBUG="files").stderr
    done = config("check", "cay.yaml", text=text.replace("yes", "perhaps"))
    assert done.returncode == 2 and "line 4: clean_output: must be true or false" in done.stderr
    done = config("check", "--load", "cay.yaml", text=text)
    assert done.returncode == 2 and "line 2: prefx: unknown key" in done.stderr


def test_what_is_no_library_is_told_with_its_line(config):
    done = config("check", "--load", "cay.yaml", text="type: x\nlibrary: cay.yaml\n")
    assert done.returncode == 2 and "line 2: library: cannot be loaded" in done.stderr
    done = config("check", "cay.yaml", text="type: x\nlibrary: none.so\n")
    assert done.returncode == 4 and "line 2: library: shared object not found" in done.stderr


# --- The manual ---


def test_the_files_in_the_manual_are_configurations(config, tmp_path):
    for name in ("manual", "out"):
        (tmp_path / name).mkdir()
    found = [block for block in blocks(page("cay-config.5.scd.in"))
             if not block.startswith("cay:")]
    assert len(found) == 3
    for text in found:
        assert check(config, text)["type"] == "native"
    assert check(config, found[1])["work_dir"] == "/home/user/project"


def test_the_error_in_the_manual_is_the_real_one(config):
    told = next(block for block in blocks(page("cay-config.5.scd.in"))
                if block.startswith("cay:"))
    assert config("check", "cay.yaml", text="limits:\n  memry: 1\n").stderr == told


def test_the_examples_of_the_page_do_what_it_says(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cay").symlink_to(os.path.abspath(CAY))
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (example,) = blocks(page("cay-config.1.scd").split("# EXAMPLES")[1])
    for command, expected in transcripts(example):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environ, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PATIENCE, check=False)
        assert done.stdout == expected, command


def fields(schema, name, prefix=""):
    """Every key of a backend: its dotted name and what the schema says of it."""
    for key, value in name["properties"].items():
        if "properties" in value:
            yield from fields(schema, value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def test_the_page_has_every_key_of_every_backend():
    built = os.path.join(os.path.dirname(os.path.abspath(CAY)), "docs", "cay-config.5")
    with open(built, encoding="utf-8") as file:
        text = re.sub(r"\\f[BIRP]|\\&|\\", "", file.read())
    schema = json.loads(SCHEMA.read_text())
    backends = [name for name in schema["definitions"] if not name.startswith("cay.")]
    assert "native" in backends
    for name in backends:
        assert f"KEYS OF {name.upper()}" in text
        for key, value in fields(schema, schema["definitions"][name]):
            assert re.search(rf"^(.*, )?{re.escape(key)}(, .*)?$", text, re.M), key
            assert value["description"][1:] in text.replace("\n", " "), key


def test_the_page_in_the_tree_is_up_to_date():
    command = [os.path.join(os.path.dirname(os.path.abspath(CAY)), "tools", "gen-config"),
               ROOT / "docs" / "cay-config.5.scd.in"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == page("cay-config.5.scd"), \
        "build/tools/gen-config docs/cay-config.5.scd.in > docs/cay-config.5.scd"


# --- The schema ---


def test_the_schema_in_the_tree_is_up_to_date(config):
    assert config("schema").stdout == SCHEMA.read_text(), \
        "build/cay config schema > data/cay-config.schema.json"


GOOD = [
    "{}",
    "type: native\nlimits: {memory: 512M, pids: '30', cpu: 50}\nvariables: {a: 1}\n",
    "limits: null\nuser: null\n",
    "envs: {A: 1.5, B: true, C: x}\nrequire: [seccomp]\nttl: '1e1'\n",
    "persist_sandbox: Yes\nephemeral: 0\nlimits: {memory: '1.5 GiB'}\n",
    "name: [x]\nvariables: {n: 7}\nsandbox_config:\n  type: native\n"
    "  limits: {pids: '${variables.n}'}\n  _work_dir: /x\n",
    "policy: {paths: {a: {root: b, mode: rw, suffixes: [.a], max_file_bytes: 3}}}\n",
    "policy: {root: b}\n",
    "policy: {mounts: [{host_path: a, mount_point: /a, write_approval: false}]}\n",
    "root: {root: a, readonly: true}\n",
    "paths: {a: {root: b}}\n",
    "mounts: [{host_path: a, mount_point: /a}]\n",
    "mounts: []\n",
    "mounts: ['/usr:/inside:ro']\n",
    "clean_output: true\nraise_errors: 'no'\n",
]
BAD = [
    "tmplate: x\n",
    "type: natve\n",
    "limits: {memry: 1}\n",
    "limits: {memory: 1XB}\n",
    "limits: {pids: 0}\n",
    "limits: {pids: x}\n",
    "limits: []\n",
    "ttl: soon\n",
    "network: maybe\n",
    "ephemeral: perhaps\n",
    "user: 12\n",
    "require: seccomp\n",
    "envs: {A: [b]}\n",
    "envs: {A: null}\n",
    "sandbox_config: {type: native, variables: {}}\n",
    "sandbox_config: {type: native, sandbox_config: {}}\n",
    "sandbox_config: native\n",
    "policy: {}\n",
    "policy: {paths: {a: {mode: rw}}}\n",
    "policy: {root: a, paths: {}}\n",
    "policy: {mounts: []}\n",
    "paths: {a: {root: b}}\nlimits: {}\n",
    "mounts: [{host_path: a, mount_point: /a}]\nuser: me\n",
    "clean_output: perhaps\n",
]


@pytest.mark.parametrize("text", GOOD + BAD)
def test_the_schema_and_the_reader_agree(config, tmp_path, text):
    for name in "ab":
        (tmp_path / name).mkdir()
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    errors = [error.message for error in validator.iter_errors(yaml.safe_load(text))]
    done = config("check", "cay.yaml", text=text)
    assert (done.returncode == 0) == (text in GOOD), done.stderr
    assert (not errors) == (text in GOOD), errors


def test_the_schema_is_one():
    jsonschema.Draft7Validator.check_schema(json.loads(SCHEMA.read_text()))
