# SPDX-License-Identifier: Apache-2.0
"""The manifests of package/kubernetes and a real Kubernetes of one machine: API server,
controllers, scheduler and kubelet, built from their Go modules, and Debian's containerd.  `make
test-k8s` builds them and runs this; it needs root.  The pods themselves are run by runc:
tests/packages/test_pods.py."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from test_manifests import FOLDER, LEVELS, ROOT, load, one, pod_of

pytestmark = pytest.mark.long

CLUSTER = Path(os.environ.get("CAY_CLUSTER", ROOT / "build-kubernetes" / "cluster"))
PATIENCE = int(os.environ.get("CAY_PATIENCE", 300))
POD_LEVELS = ("privileged", "baseline", "restricted")


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

    def inside(self, *words, **options):
        """Runs a command with the machine's mounts and network."""
        process = self.process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        assert children, self.logs()
        return subprocess.run(
            ["nsenter", f"--target={children[0]}", "--mount", "--net", *words],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
            env={**os.environ, "HOME": str(self.folder), **options.pop("env", {})}, **options)

    def kubectl(self, *words, **options):
        return self.inside(CLUSTER, "kubectl", f"--kubeconfig={self.folder}/kubeconfig", *words,
                           **options)

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


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert CLUSTER.exists(), "run `make test-k8s`"
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
