# SPDX-License-Identifier: Apache-2.0
"""The manifests of package/kubernetes and a real Kubernetes of one machine: API server,
controllers, scheduler and kubelet, built from their Go modules, and Debian's containerd.  `make
test-k8s` builds them and runs this; it needs root."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from test_manifests import CHART, FOLDER, LEVELS, ROOT, load, one, pod_of

pytestmark = pytest.mark.long

CLUSTER = Path(os.environ.get("CAY_CLUSTER", ROOT / "build-kubernetes" / "cluster"))
RENDER = Path(os.environ.get("CAY_RENDER", ROOT / "build-kubernetes" / "render"))
PACKAGES = Path(os.environ.get("CAY_PACKAGES", ROOT / "dist"))
KEY = "e2b_" + "0123456789abcdef" * 2
PATIENCE = int(os.environ.get("CAY_PATIENCE", 300))
SMALL = {"cpu": "100m", "memory": "2Gi", "ephemeral-storage": "1Gi"}
POD_LEVELS = ("privileged", "baseline", "restricted")
ENDS = (r'jsonpath={.metadata.uid} exit:'
        r'{.status.containerStatuses[0].state.terminated.exitCode}{"\n"}')
CREATE = """
from e2b import Sandbox
sandbox = Sandbox.create(timeout=600)
print(sandbox.commands.run("id -un; python3 -c 'print(6 * 7)'").stdout)
sandbox.files.write("/home/user/note", "kept")
print(sandbox.files.read("/home/user/note"))
print(sandbox.sandbox_id)
"""
KILL = "import sys; from e2b import Sandbox; print(Sandbox.kill(sys.argv[1]))"
STATUS = """
import os, sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(os.environ["E2B_API_URL"] + sys.argv[1]).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def pause_image(path):
    """What holds the namespaces of a pod: Debian's static busybox, asleep."""
    def add(archive, name, data, mode=0o644):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), mode
        archive.addfile(entry, BytesIO(data))

    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        add(archive, "sleep", Path("/bin/busybox").read_bytes(), 0o755)
    digest = subprocess.run(["sha256sum"], input=layer.getvalue(), capture_output=True,
                            check=True).stdout.split()[0].decode()
    config = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
              "os": "linux", "config": {"Entrypoint": ["/sleep", "infinity"]},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    with tarfile.open(path, "w") as archive:
        add(archive, "config.json", json.dumps(config).encode())
        add(archive, "layer.tar", layer.getvalue())
        add(archive, "manifest.json", json.dumps(
            [{"Config": "config.json", "RepoTags": ["cay.test/pause:1"],
              "Layers": ["layer.tar"]}]).encode())


class Cluster:
    """The machine of tests/kubernetes/machine, and what is done to it."""

    def __init__(self, folder):
        self.folder = folder
        self.cgroup = f"cay-machine-{os.getpid()}"
        self.log = folder / "machine.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 ROOT / "tests" / "kubernetes" / "machine", CLUSTER, folder, self.cgroup],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}"
                         for path in sorted(self.folder.glob("*.log")))

    def command(self, *words):
        """What runs a command with the machine's mounts and network."""
        process = self.process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        assert children, self.logs()
        return ["nsenter", f"--target={children[0]}", "--mount", "--net", *words]

    def inside(self, *words, **options):
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False, timeout=PATIENCE,
            env={**os.environ, "HOME": str(self.folder), **options.pop("env", {})}, **options)

    def kubectl(self, *words, **options):
        return self.inside(CLUSTER, "kubectl", f"--kubeconfig={self.folder}/kubeconfig", *words,
                           **options)

    @contextmanager
    def watch(self, *words):
        """A file that gets a line for each state of an object, the first of them at once."""
        target = self.folder / "watched"
        with target.open("wb") as file, subprocess.Popen(
                self.command(CLUSTER, "kubectl", f"--kubeconfig={self.folder}/kubeconfig", "get",
                             "--watch", *words), stdin=subprocess.DEVNULL, stdout=file) as process:
            try:
                self.wait("first state", target.read_text)
                yield target
            finally:
                process.kill()

    def do(self, *words, **options):
        """What a command of kubectl prints, which must succeed."""
        done = self.kubectl(*words, **options)
        assert done.returncode == 0, f"{words}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def get(self, *words):
        return json.loads(self.do("get", "-o", "json", *words))

    def apply(self, documents, *words, **options):
        """As JSON: PyYAML writes the text "n" as it is, which kubectl reads as false."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        return self.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", *words,
                            input=json.dumps(items), **options)

    def wait(self, what, is_there):
        deadline = time.monotonic() + PATIENCE
        while not (found := is_there()):
            assert self.process.poll() is None, f"the machine ended: {self.logs()}"
            assert time.monotonic() < deadline, f"no {what}: {self.logs()}"
            time.sleep(0.5)
        return found

    def wait_until_it_runs(self):
        def node():
            done = self.kubectl("get", "nodes", "-o", "json")
            conditions = [condition for each in json.loads(done.stdout or "{}").get("items", ())
                          for condition in each["status"]["conditions"]]
            return {"type": "Ready", "status": "True"}.items() <= next(
                (each for each in conditions if each["type"] == "Ready"), {}).items()

        self.wait("children", lambda: (self.folder / "kubeconfig").exists())
        self.wait("node", node)

    def make_namespace(self, name, level):
        """As docs/kubernetes.md does."""
        self.do("create", "namespace", name)
        self.do("label", "namespace", name, f"pod-security.kubernetes.io/enforce={level}")
        self.wait("account", lambda: self.kubectl(
            "get", "-n", name, "serviceaccount", "default").returncode == 0)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()  # and with it all others of its namespace
        self.process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        root = Path("/sys/fs/cgroup")
        for top in (root / self.cgroup, *root.glob(f"*/{self.cgroup}")):
            for group in sorted((Path(path) for path, _, _ in os.walk(top)), reverse=True):
                while group.exists():
                    try:
                        group.rmdir()
                    except OSError:  # its last processes are ending
                        assert time.monotonic() < deadline, group
                        time.sleep(0.1)
        shutil.rmtree(self.folder / "lib", ignore_errors=True)  # images and their containers


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert CLUSTER.exists() and RENDER.exists(), "run `make test-k8s`"
    for program in ("containerd", "runc"):
        assert shutil.which(program), f"{program}: tools/install-packages kubernetes"
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.wait_until_it_runs()
        for level in POD_LEVELS:
            cluster.make_namespace(f"test-{level}", level)
        cluster.make_namespace("cay", "privileged")
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(name="isolation", params=LEVELS)
def fixture_isolation(request):
    return request.param


# --- The API server ---


def names(documents):
    return sorted((each["kind"].lower(), each["metadata"]["name"]) for each in documents)


def test_the_api_server_accepts_every_object_and_stores_none(cluster, isolation):
    before = cluster.do("get", "all,pdb,networkpolicy,configmap", "-n", "cay", "-o", "name")
    said = cluster.do("apply", "--server-side", "--validate=strict", "--dry-run=server", "-o",
                      "json", "-f", str(FOLDER / f"{isolation}.yaml"))
    answered = json.loads(said)["items"]
    assert names(answered) == names(load(isolation))
    # What only a server adds: defaults of the API.
    assert pod_of(answered, "StatefulSet", "cay")["schedulerName"] == "default-scheduler"
    after = cluster.do("get", "all,pdb,networkpolicy,configmap", "-n", "cay", "-o", "name")
    assert (before, "statefulset" in after) == (after, False)


def test_servers_share_an_index_and_a_directory_if_the_chart_names_them(cluster):
    said = subprocess.run([RENDER, CHART, "cay", "store.secret=database", "shared.claim=all"],
                          capture_output=True, text=True, check=True).stdout
    done = cluster.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "-o",
                           "json", "-f", "-", input=said)
    assert done.returncode == 0, done.stderr
    pod = pod_of(json.loads(done.stdout)["items"], "StatefulSet", "cay")
    (container,) = pod["containers"]
    variables = {each["name"]: each for each in container["env"]}
    assert variables["CAY_STORE"]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["shared"]["persistentVolumeClaim"]["claimName"] == "all"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert variables["CAY_SHARED"]["value"].startswith(f"{mounts['shared']}/")
    (plain,) = pod_of(load("privileged"), "StatefulSet", "cay")["containers"]
    assert {each["name"] for each in plain["env"]} == set(variables) - {"CAY_STORE", "CAY_SHARED"}


def test_the_api_server_refuses_a_field_that_does_not_exist(cluster):
    documents = load("privileged")
    pod_of(documents, "StatefulSet", "cay")["terminationGraceSeconds"] = 60
    done = cluster.apply(documents, "--dry-run=server")
    assert done.returncode != 0
    assert 'field not declared in schema' in done.stderr or "unknown field" in done.stderr
    assert "terminationGraceSeconds" in done.stderr


def test_the_api_server_refuses_what_the_schemas_cannot_see(cluster):
    documents = load("user-namespace")
    del pod_of(documents, "StatefulSet", "cay")["hostUsers"]
    done = cluster.apply(documents, "--dry-run=server")
    assert done.returncode != 0
    assert "procMount" in done.stderr and "hostUsers" in done.stderr


def single_pod(documents, kind, name, namespace):
    """The pod that a controller would create."""
    owner = one(documents, kind, name)
    spec = owner["spec"]["template"]["spec"]
    for claim in owner["spec"].get("volumeClaimTemplates", ()):
        spec["volumes"].append({"name": claim["metadata"]["name"],
                                "persistentVolumeClaim": {"claimName": "state"}})
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "one", "namespace": namespace,
                         "labels": owner["spec"]["template"]["metadata"]["labels"]}, "spec": spec}


@pytest.mark.parametrize("level", POD_LEVELS)
def test_pod_security_admits_servers_as_the_documentation_says(cluster, isolation, level):
    pod = single_pod(load(isolation), "StatefulSet", "cay", f"test-{level}")
    done = cluster.apply([pod], "--dry-run=server")
    if level == "privileged":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert f'violates PodSecurity "{level}:latest"' in done.stderr


def test_the_proxy_is_admitted_where_pods_are_restricted(cluster, isolation):
    pod = single_pod(load(isolation), "Deployment", "cay-proxy", "test-restricted")
    done = cluster.apply([pod], "--dry-run=server")
    assert done.returncode == 0, done.stderr


# --- A pod ---


def small(isolation, without=()):
    """The manifest for one server on a small machine that has no image of HAProxy."""
    documents = load(isolation)
    stateful = one(documents, "StatefulSet", "cay")
    stateful["spec"]["replicas"] = 1
    one(documents, "Deployment", "cay-proxy")["spec"]["replicas"] = 0
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = "1Gi"
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": SMALL, "limits": {**SMALL, "cpu": "2"}}
    added = container["securityContext"].get("capabilities", {}).get("add", [])
    for name in without:
        added.remove(name)
    return documents


@pytest.fixture(name="images", scope="module")
def fixture_images(cluster):
    found = list(PACKAGES.glob(f"cay-*-image-{platform.machine()}.tar"))
    if not found:
        pytest.skip(f"{PACKAGES} has no image: `make packages` builds it")
    pause = cluster.folder / "pause.tar"
    pause_image(pause)
    for path in (pause, *found):
        done = cluster.inside("ctr", "--namespace=k8s.io", "images", "import", path)
        assert done.returncode == 0, done.stderr


class Release:
    """What a manifest creates, with a volume for its first server."""

    def __init__(self, cluster):
        self.cluster = cluster
        # Each release has a directory of its own.
        self.state = f"/var/lib/state-{time.monotonic_ns()}"

    def create(self, documents):
        volume = {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "state"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                     "persistentVolumeReclaimPolicy": "Retain",
                     "hostPath": {"path": self.state, "type": "DirectoryOrCreate"}}}
        self.cluster.do("create", "secret", "generic", "cay-keys", "-n", "cay",
                        f"--from-literal=server.key={'ab' * 32}", f"--from-literal=api.key={KEY}")
        done = self.cluster.apply([volume, *documents])
        assert done.returncode == 0, done.stderr

    def pod(self):
        done = self.cluster.kubectl("get", "-n", "cay", "pod", "cay-0", "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def status(self):
        (found,) = self.pod().get("status", {}).get("containerStatuses", ({},))
        return found

    def ready(self):
        pod = self.pod()
        is_ready = "deletionTimestamp" not in pod.get("metadata", ()) and self.status().get("ready")
        return pod if is_ready else None

    def wait_until_ready(self):
        """The pod, unless the container runtime of this machine cannot run such pods."""
        def decided():
            events = self.cluster.get("events", "-n", "cay")["items"]
            reasons = [each["message"] for each in events
                       if each["reason"] == "FailedCreatePodSandBox"
                       and "runtime does not support user namespaces" in each["message"]]
            return self.ready() or next(iter(reasons), None)

        found = self.cluster.wait("server", decided)
        if isinstance(found, str):
            version = self.cluster.inside("containerd", "--version").stdout.split()[2]
            pytest.skip(f"containerd {version}: {found}")
        return found

    def client(self, program, *words):
        """Runs Python on the machine, with the address of the pod."""
        url = f"http://{self.pod()['status']['podIP']}:3000"
        done = self.cluster.inside(
            sys.executable, "-c", program, *words,
            env={"E2B_API_KEY": KEY, "E2B_API_URL": url, "E2B_SANDBOX_URL": url})
        assert done.returncode == 0, f"{done.stderr}{self.log()}"
        return done.stdout.strip()

    def log(self, *words):
        return self.cluster.kubectl("logs", "-n", "cay", "cay-0", *words).stdout

    def remove(self):
        for words in (("statefulset,deployment,daemonset", "--all", "--wait=false"),
                      ("pod", "--all", "--grace-period=0", "--force"),
                      ("all,pdb,networkpolicy,configmap,secret,pvc,events", "--all")):
            self.cluster.do("delete", "-n", "cay", *words)
        self.cluster.do("delete", "persistentvolume", "state", "--ignore-not-found")


@pytest.fixture(name="release")
def fixture_release(cluster, images):
    made = []

    def create(documents):
        made.append(Release(cluster))
        made[-1].create(documents)
        return made[-1]

    yield create
    for each in made:
        each.remove()


def test_the_sdk_uses_a_pod_that_is_replaced_after_its_last_sandbox(cluster, release, isolation):
    """preStop drains; a sandbox that runs keeps the old pod, and its end lets the pod end."""
    server = release(small(isolation))
    first = server.wait_until_ready()
    assert first["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    user, number, note, sandbox = server.client(CREATE).split()
    assert (user, number, note) == ("user", "42", "kept")
    assert sandbox.startswith("naaa")
    listed = cluster.do("exec", "-n", "cay", "cay-0", "--", "cay", "ls", "-o", "json")
    (found,) = json.loads(listed)["sandboxes"]
    assert (found["id"], found["level"]) == (f"sb-{sandbox}", LEVELS[isolation])

    with cluster.watch("-n", "cay", "pod", "cay-0", "-o", ENDS) as ends:
        cluster.do("delete", "-n", "cay", "pod", "cay-0", "--wait=false")
        cluster.wait("drain", lambda: server.client(STATUS, "/ready") == "404")
        assert server.pod()["metadata"]["uid"] == first["metadata"]["uid"]
        assert server.client(KILL, sandbox) == "True"
        second = cluster.wait("second server", server.ready)
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        found = [line for line in ends.read_text().splitlines() if not line.endswith("exit:")]
    assert set(found) == {f"{first['metadata']['uid']} exit:0"}


def test_a_pod_that_is_allowed_less_is_never_ready(cluster, release):
    server = release(small("capabilities", without=("SYS_ADMIN",)))

    def reason():  # a container that ended is removed some time after the next one's start
        texts = (server.log(), server.log("--previous"))
        return next((text for text in texts if "--require-level" in text), None)

    assert "landlock, not root" in cluster.wait("log of a server that ended", reason)
    cluster.wait("restart", lambda: server.status().get("restartCount", 0) > 0)
    assert not server.status()["ready"]
