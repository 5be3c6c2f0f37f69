# SPDX-License-Identifier: Apache-2.0
"""The image in containers as a kubelet and runc make them of package/kubernetes: with the
capabilities, the seccomp profile, the options and the volumes of each manifest, and a network of
their own."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import yaml
from conftest import ROOT, ROOTS
from test_image import CAPABILITIES, KEY, image, layout  # noqa: F401 (fixtures)

LEVELS = {"privileged": "root", "capabilities": "root", "user-namespace": "single"}
OF_PRIVILEGED = ("DAC_READ_SEARCH", "IPC_LOCK", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE", "SYS_PTRACE")
FIRST_ID, IDS = 0x6A000000, 65536  # of the user namespace
PATIENCE = int(os.environ.get("CAY_PATIENCE", 60))
CREATE = """
from e2b import Sandbox
sandbox = Sandbox.create(timeout=600)
print(sandbox.commands.run("id -un; python3 -c 'print(6 * 7)'").stdout)
sandbox.files.write("/home/user/note", "kept")
print(sandbox.files.read("/home/user/note"))
print(sandbox.sandbox_id)
"""
KILL = "import sys; from e2b import Sandbox; print(Sandbox.kill(sys.argv[1]))"
READY = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(f"http://127.0.0.1:3000/{sys.argv[1]}").status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("away")
"""


def server_of(isolation):
    text = (ROOT / "package" / "kubernetes" / f"{isolation}.yaml").read_text(encoding="utf-8")
    (stateful,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "StatefulSet"]
    return stateful["spec"]["template"]["spec"]


@pytest.fixture(name="root", scope="module")
def fixture_root(layout):  # noqa: F811
    """The image's files, where the root of a user namespace can reach them."""
    folder = ROOTS / f"pods-{os.getpid()}"
    folder.mkdir(parents=True)
    (manifest,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = manifest["annotations"]["org.opencontainers.image.ref.name"]
    try:
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:{tag}", folder / "bundle"],
                       check=True, capture_output=True)
        for path in (folder / "bundle", folder / "bundle" / "rootfs"):
            path.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


class Pod:
    """One container of the StatefulSet's second pod."""

    def __init__(self, folder, isolation, without=()):
        self.folder, self.bundle = folder, folder / "bundle"
        self.name = f"cay-pod-{os.getpid()}"
        self.spec = server_of(isolation)
        (self.container,) = self.spec["containers"]
        self.without = without
        self.process = None
        self.log = folder / "log"

    def owner(self):
        return FIRST_ID if self.spec.get("hostUsers") is False else 0

    def volumes(self):
        """As kubelets make them: an emptyDir for all users, and links in a Secret."""
        state, keys = self.folder / "state", self.folder / "keys"
        for path in (state, keys):
            shutil.rmtree(path, ignore_errors=True)
        state.mkdir()
        state.chmod(0o777)
        (keys / "..2026").mkdir(parents=True)
        (keys / "..data").symlink_to("..2026")
        for name, text in (("server.key", "ab" * 32), ("api.key", KEY)):
            path = keys / "..2026" / name
            path.write_text(text)
            path.chmod(0o400)
            (keys / name).symlink_to(f"..data/{name}")
            os.chown(path, self.owner(), self.owner())
        os.chown(state, self.owner(), self.owner())
        return [
            {"destination": "/run", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "nodev", "mode=777"]},
            {"destination": "/var/lib/cay", "type": "bind", "source": str(state),
             "options": ["rbind", "rw"]},
            {"destination": "/etc/cay-keys", "type": "bind", "source": str(keys),
             "options": ["rbind", "ro"]}]

    def configure(self):
        made = self.bundle / "image.json"
        if not made.exists():
            (self.bundle / "config.json").rename(made)
        config = json.loads(made.read_text())
        context = self.container["securityContext"]
        added = (OF_PRIVILEGED if context.get("privileged")
                 else context.get("capabilities", {}).get("add", ()))
        names = [f"CAP_{name}" for name in (*CAPABILITIES, *added) if name not in self.without]
        process, linux = config["process"], config["linux"]
        process["args"] = ["cay-container", *self.container["args"]]
        process["terminal"], process["noNewPrivileges"] = False, False
        process["env"] += ["HOME=/root", "CAY_POD=cay-1", "CAY_CELL=n"]
        process["capabilities"] = {kind: names for kind in ("bounding", "effective", "permitted")}
        if context.get("privileged") or context.get("procMount") == "Unmasked":
            del linux["maskedPaths"], linux["readonlyPaths"]
        linux.pop("seccomp", None)
        if context.get("seccompProfile", {}).get("localhostProfile") == "cay.json":
            profile = ROOT / "package" / "kubernetes" / "chart" / "files" / "seccomp.json"
            linux["seccomp"] = json.loads(profile.read_text())
        if self.owner():
            linux["namespaces"].append({"type": "user"})
            for kind in ("uidMappings", "gidMappings"):
                linux[kind] = [{"containerID": 0, "hostID": self.owner(), "size": IDS}]
        volumes = self.volumes()
        for volume in volumes:  # the root of a user namespace cannot, since nothing shifts owners
            place = self.bundle / "rootfs" / volume["destination"][1:]
            place.mkdir(parents=True, exist_ok=True)
        taken = {volume["destination"] for volume in volumes} | {"/sys/fs/cgroup"}
        config["mounts"] = [mount for mount in config["mounts"]
                            if mount["destination"] not in taken] + volumes
        (self.bundle / "config.json").write_text(json.dumps(config))

    def start(self):
        self.configure()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["runc", "run", "--bundle", self.bundle, self.name],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def wait_for(self, path, *states):
        deadline = time.monotonic() + PATIENCE
        while (found := self.client(READY, path)) not in states:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"{path} is {found}: {self.log.read_text()}"
        return found

    def client(self, program, *words):
        """Runs Python in the pod's network."""
        state = subprocess.run(["runc", "state", self.name], capture_output=True, text=True,
                               check=False)
        pid = json.loads(state.stdout)["pid"] if state.returncode == 0 else 0
        if not pid:
            return "away"
        url = "http://127.0.0.1:3000"
        done = subprocess.run(
            ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", program, *words],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
            env={**os.environ, "E2B_API_KEY": KEY, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
        assert done.returncode == 0, f"{done.stderr}{self.log.read_text()}"
        return done.stdout.strip()

    def exec(self, *words):
        return subprocess.run(["runc", "exec", self.name, *words], capture_output=True, text=True,
                              check=False, timeout=PATIENCE)

    def remove(self):
        subprocess.run(["runc", "delete", "--force", self.name], check=False, capture_output=True)
        if self.process:
            self.process.wait(PATIENCE)


@pytest.fixture(name="pod")
def fixture_pod(root):
    made = []

    def start(isolation, without=()):
        made.append(Pod(root, isolation, without))
        return made[-1].start()

    yield start
    for each in made:
        each.remove()


@pytest.mark.parametrize("isolation", LEVELS)
def test_the_sdk_uses_a_pod_that_drains_at_its_end(pod, isolation):
    server = pod(isolation)
    server.wait_for("health", "200", "204")
    user, number, note, sandbox = server.client(CREATE).split()
    assert (user, number, note) == ("user", "42", "kept")
    assert sandbox.startswith("naab")
    listed = json.loads(server.exec("cay", "ls", "-o", "json").stdout)
    assert LEVELS[isolation] in json.dumps(listed), listed

    # preStop, without the time that it waits
    words = server.container["lifecycle"]["preStop"]["exec"]["command"]
    stop = words[-1].partition(" && ")[0]
    assert server.exec(*words[:-1], stop).returncode == 0
    server.wait_for("ready", "404")
    assert server.process.poll() is None
    assert server.client(KILL, sandbox) == "True"
    assert server.process.wait(PATIENCE) == 0, server.log.read_text()


def test_a_pod_that_is_allowed_less_does_not_start(pod):
    server = pod("capabilities", without=("SYS_ADMIN",))
    assert server.process.wait(PATIENCE) != 0
    log = server.log.read_text()
    assert "less than required" in log and "landlock" in log


def test_the_files_of_this_test_are_where_a_mapped_root_reaches_them(root):
    inside = root / "bundle" / "rootfs"
    for path in (inside, *inside.parents):
        assert path.stat().st_mode & 1, path
