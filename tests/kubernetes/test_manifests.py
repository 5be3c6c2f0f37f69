# SPDX-License-Identifier: Apache-2.0
"""The manifests of package/kubernetes: what the API accepts, what `cay serve` accepts, and what
fits together.  test_cluster.py gives the objects to an API server."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CAY = os.environ.get("CAY_BIN", str(ROOT / "build" / "cay"))
FOLDER = ROOT / "package" / "kubernetes"
CHART = FOLDER / "chart"
LEVELS = {"privileged": "root", "capabilities": "root", "user-namespace": "single"}
VERSIONS = ("1.27", "1.34")
PATIENCE = 60


def load(isolation):
    text = (FOLDER / f"{isolation}.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.safe_load_all(text) if each]


def one(documents, kind, name):
    (found,) = [each for each in documents
                if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(documents, kind, name):
    return one(documents, kind, name)["spec"]["template"]["spec"]


def server_of(documents):
    (container,) = pod_of(documents, "StatefulSet", "cay")["containers"]
    return container


@pytest.fixture(name="isolation", params=LEVELS)
def fixture_isolation(request):
    return request.param


@pytest.fixture(name="documents")
def fixture_documents(isolation):
    return load(isolation)


# --- The API ---


def test_the_manifests_are_of_this_chart(isolation):
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n"
        for path in sorted(CHART.rglob("*"), key=str) if path.is_file())
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert f"# Chart: {digest}\n" in (FOLDER / f"{isolation}.yaml").read_text(), (
        "run `make manifests`")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_accept_every_object(documents, isolation, version):
    for each in documents:
        if version == "1.27" and isolation == "user-namespace" and each["kind"] == "StatefulSet":
            continue  # hostUsers and procMount together are newer
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_refuse_a_field_that_does_not_exist(documents):
    stateful = one(documents, "StatefulSet", "cay")
    stateful["spec"]["template"]["spec"]["terminationGraceSeconds"] = 60
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(stateful, "1.34", strict=True)


def test_the_chart_has_the_version_of_cay():
    version = subprocess.run([ROOT / "package" / "version"], check=True, text=True,
                             capture_output=True).stdout.strip()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert values["image"] == f"cay:{version}"


# --- Names that must agree ---


def test_selectors_find_their_pods(documents):
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in documents
            if each["kind"] in ("StatefulSet", "Deployment", "DaemonSet")]
    for each in documents:
        selector = each.get("spec", {}).get("podSelector", each.get("spec", {}).get("selector"))
        if selector:
            wanted = selector.get("matchLabels", selector).items()
            assert sum(wanted <= labels.items() for labels in pods) == 1, each["metadata"]


def test_ports_and_volumes_have_the_names_that_are_used(documents):
    ports = set()
    for each in documents:
        if each["kind"] not in ("StatefulSet", "Deployment", "DaemonSet"):
            continue
        pod = each["spec"]["template"]["spec"]
        claims = each["spec"].get("volumeClaimTemplates", [])
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in claims}
        mounted = set()
        for container in pod["containers"] + pod.get("initContainers", []):
            mounted |= {mount["name"] for mount in container["volumeMounts"]}
            ports |= {port["name"] for port in container.get("ports", [])}
        assert mounted == volumes
    for each in documents:
        if each["kind"] == "Service":
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports


# --- What a pod is allowed ---


def test_each_isolation_has_its_settings_and_never_starts_on_less(documents, isolation):
    container = server_of(documents)
    context = container["securityContext"]
    assert f"--require-level={LEVELS[isolation]}" in container["args"]
    profile = context.get("seccompProfile", {}).get("localhostProfile")
    assert context.get("privileged", False) == (isolation == "privileged")
    assert profile == (None if isolation == "privileged" else "cay.json")
    assert (context.get("capabilities", {}).get("add", []) == ["SYS_ADMIN", "SYS_PTRACE"]) == (
        isolation == "capabilities")
    pod = pod_of(documents, "StatefulSet", "cay")
    is_in_namespace = isolation == "user-namespace"
    assert (pod.get("hostUsers", True), context.get("procMount")) == (
        (False, "Unmasked") if is_in_namespace else (True, None))


def test_no_pod_has_a_token_of_the_api_server(documents):
    for each in documents:
        if "template" in each.get("spec", {}):
            assert each["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_keys_are_readable_for_root_only(documents):
    (secret,) = [volume["secret"] for volume in pod_of(documents, "StatefulSet", "cay")["volumes"]
                 if "secret" in volume]
    assert secret["defaultMode"] == 0o400


def test_a_pod_waits_for_its_last_sandbox(documents):
    pod = pod_of(documents, "StatefulSet", "cay")
    command = server_of(documents)["lifecycle"]["preStop"]["exec"]["command"][-1]
    seconds = int(re.fullmatch(r"kill -USR1 1 && sleep (\d+)", command)[1])
    (hours,) = [int(word.partition("=")[2]) for word in server_of(documents)["args"]
                if word.startswith("--max-hours=")]
    assert hours * 3600 <= seconds < pod["terminationGracePeriodSeconds"]


# --- The seccomp profile ---

# What escapes and crashes of the kernel are made of, and no sandbox needs.
REFUSED = ("acct", "add_key", "bpf", "delete_module", "fanotify_init", "finit_module",
           "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm",
           "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "move_pages",
           "open_by_handle_at", "perf_event_open", "process_vm_readv", "process_vm_writev",
           "quotactl", "reboot", "request_key", "settimeofday", "swapoff", "swapon", "syslog",
           "userfaultfd", "vhangup")
# What RuntimeDefault lacks.
NEEDED = ("clone3", "fsconfig", "fsmount", "fsopen", "mount", "mount_setattr", "move_mount",
          "open_tree", "pivot_root", "setns", "umount2", "unshare")


def profile():
    return json.loads((CHART / "files" / "seccomp.json").read_text())


def test_the_profile_allows_what_a_sandbox_needs_and_nothing_dangerous():
    rules = profile()["syscalls"]
    names = {name for rule in rules for name in rule["names"]}
    assert profile()["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {rule["action"] for rule in rules} == {"SCMP_ACT_ALLOW"}
    assert not names & set(REFUSED)
    assert set(NEEDED) <= set(rules[0]["names"])
    (socket,) = [rule for rule in rules if "args" in rule]
    assert (socket["names"], socket["args"]) == (
        ["socket"], [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}])  # AF_VSOCK


def test_the_profile_has_names_of_system_calls():
    library = ctypes.CDLL("libseccomp.so.2")
    newer = {"getxattrat", "listmount", "listxattrat", "mseal", "open_tree_attr", "removexattrat",
             "setxattrat", "statmount"}  # runtimes skip those that their library does not know
    names = {name for rule in profile()["syscalls"] for name in rule["names"]}
    unknown = {name for name in names if library.seccomp_syscall_resolve_name(name.encode()) == -1}
    assert unknown <= newer
    assert library.seccomp_syscall_resolve_name(b"no_such_call") == -1


def test_machines_get_the_profile(documents, isolation):
    maps = [each["data"]["cay.json"] for each in documents if each["kind"] == "ConfigMap"]
    assert [json.loads(text) for text in maps] == (
        [] if isolation == "privileged" else [profile()])


# --- The server and the proxy ---


def run(*words, **environment):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE,
                          env={**os.environ, **environment})


def test_cay_serve_knows_the_options(documents, tmp_path):
    """With --haproxy it reads all of them, and starts nothing."""
    words = server_of(documents)["args"]
    ending = ("--node", "naaa", "--haproxy", "naaa=10.0.0.1:3000")
    done = run(CAY, "serve", *words, *ending, CAY_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    wrong = run(CAY, "serve", *words, "--no-such-option", *ending, CAY_HOME=str(tmp_path))
    assert wrong.returncode != 0
    assert "no-such-option" in wrong.stderr


@pytest.fixture(name="container")
def fixture_container(tmp_path):
    """package/container.sh, with programs that change nothing: runs it for a pod, and returns
    what it gives to cay."""
    programs = tmp_path / "bin"
    programs.mkdir()
    no_proc = '[ "$*" != "-p /run/cay-proc" ] && exec /bin/mkdir "$@"'
    for name, text in (("cay", 'echo "$*"'), ("mount", "exit 1"), ("mkdir", no_proc)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()

    def start(**environment):
        return run("sh", str(ROOT / "package" / "container.sh"), "--quiet", CAY_HOME=str(home),
                   PATH=f"{programs}:{os.environ['PATH']}", **environment)

    return start


def nodes_of(documents):
    (configuration,) = pod_of(documents, "Deployment", "cay-proxy")["initContainers"]
    words = configuration["args"]
    return configuration, dict(word.split("=") for word in words[words.index("--haproxy") + 1:])


def test_the_proxy_knows_each_pod_by_the_name_that_its_server_has(container):
    documents = load("privileged")
    nodes = nodes_of(documents)[1]
    stateful = one(documents, "StatefulSet", "cay")
    assert len(nodes) > stateful["spec"]["replicas"]
    for number, (node, address) in enumerate(nodes.items()):
        assert address == f"cay-{number}.cay-nodes.cay.svc.cluster.local:3000"
        assert container(CAY_POD=f"cay-{number}").stdout.split() == [
            "serve", "--listen", "0.0.0.0:3000", "--on-exit", "kill", "--node", node, "--quiet"]
    assert one(documents, "Service", stateful["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("number, node", [
    (0, "naaa"), (25, "naaz"), (26, "naba"), (676, "nbaa"), (17575, "nzzz")])
def test_numbers_of_pods_are_letters(container, number, node):
    assert f"--node {node} " in container(CAY_POD=f"my-cay-{number}").stdout


def test_a_cell_has_another_first_letter(container):
    assert "--node baac " in container(CAY_POD="cay-2", CAY_CELL="b").stdout


def test_the_container_starts_without_a_state_directory(container, tmp_path):
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) != 0o700
    assert container().stdout.split()[0] == "serve"
    if os.geteuid() == 0:
        assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    (tmp_path / "home").rmdir()
    done = container()
    assert done.stdout.split()[0] == "serve", done.stderr


def test_the_container_creates_a_private_directory_in_a_volume_of_all_servers(container, tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    shared = volume / "shared"
    for _ in range(2):
        words = container(CAY_POD="cay-1", CAY_SHARED=str(shared)).stdout.split()
        assert words[words.index("--shared") + 1] == str(shared)
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    assert "--shared" not in container(CAY_POD="cay-1").stdout


@pytest.mark.parametrize("pod, cell", [
    ("cay-17576", "n"), ("cay-999999", "n"), ("cay", "n"), ("cay-", "n"), ("cay-1x", "n"),
    ("cay-01", "n"), ("cay-1", "N"), ("cay-1", "nn")])
def test_a_pod_without_a_number_is_refused(container, pod, cell):
    done = container(CAY_POD=pod, CAY_CELL=cell)
    assert done.returncode == 2
    assert "17576" in done.stderr
    assert done.stdout == ""


def test_haproxy_accepts_the_configuration_and_starts_before_the_pods(documents, tmp_path):
    configuration, nodes = nodes_of(documents)
    assert configuration["command"][:2] == ["sh", "-c"]
    script = configuration["command"][2]
    target = tmp_path / "haproxy.cfg"
    assert script == 'cay serve "$@" >/configuration/haproxy.cfg'
    done = run("sh", "-c", script.replace("/configuration/haproxy.cfg", str(target)), "sh",
               *configuration["args"], PATH=f"{Path(CAY).parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    text = target.read_text()
    for node, address in nodes.items():
        line = f"    server {node} {address} "
        assert text.count(line) == 4
        assert text.count(line) == len(re.findall(
            f"^{re.escape(line)}.* resolvers system init-addr none$", text, re.M))
    if not shutil.which("haproxy"):
        pytest.fail("HAProxy is not installed: tools/install-packages test")
    done = run("haproxy", "-c", "-f", str(target))
    assert done.returncode == 0, done.stderr
