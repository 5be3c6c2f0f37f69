# SPDX-License-Identifier: Apache-2.0
"""The image of the server: its format, and the server in containers like Docker's."""

import contextlib
import gzip
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from urllib.parse import quote

import pytest
from conftest import PACKAGES, ROOT

sys.path.append(str(ROOT / "tests" / "server"))
from cluster import Postgres  # noqa: E402
from serving import wait_until  # noqa: E402

KEY = "e2b_" + "0123456789abcdef" * 2
# Docker's; Podman's are fewer.
CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
                "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
                "SYS_CHROOT")
# In Docker's filter, but not in that of Debian's package, they need CAP_SYS_ADMIN.
OF_ADMIN = {"clone3", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr",
            "move_mount", "open_tree", "pivot_root", "setns", "umount", "umount2", "unshare"}
NAMESPACES = 0x7E020000  # CLONE_NEW*
PROGRAM = """
from e2b import Sandbox
with Sandbox.create() as sandbox:
    print(sandbox.commands.run("id -un; python3 -c 'print(6 * 7)'; bash -c 'echo bash'").stdout)
    sandbox.files.write("/home/user/note", "kept")
    print(sandbox.files.read("/home/user/note"))
"""


@pytest.fixture(scope="module")
def image():
    found = list(PACKAGES.glob(f"cay-*-image-{platform.machine()}.tar"))
    assert found, "run `make packages`"
    return found[0]


@pytest.fixture(scope="module")
def layout(image, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layout")
    with tarfile.open(image) as archive:
        archive.extractall(folder, filter="tar")
    return folder


def blob(layout, digest):
    kind, _, name = digest.partition(":")
    data = (layout / "blobs" / kind / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == name
    return data


def test_the_layout_is_complete_and_its_digests_are_right(layout):
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(layout, index["manifests"][0]["digest"]))
    config = json.loads(blob(layout, manifest["config"]["digest"]))
    layers = [gzip.decompress(blob(layout, layer["digest"])) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(data).hexdigest()}"
                                            for data in layers]
    version = subprocess.run([ROOT / "package" / "version"], check=True, text=True,
                             capture_output=True).stdout.strip()
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == version


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
def test_skopeo_reads_the_image(image, kind):
    done = subprocess.run(["skopeo", "inspect", "--config", f"{kind}:{image}"], check=True,
                          capture_output=True, text=True)
    assert json.loads(done.stdout)["config"]["Entrypoint"] == ["cay-container"]


def filter_of(capabilities):
    """Docker's seccomp filter for these capabilities, from the one of Debian's Podman."""
    profile = json.loads(open("/usr/share/containers/seccomp.json", encoding="utf-8").read())
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes", {}), rule.get("excludes", {})
        if (not set(includes.get("caps", ())) <= set(capabilities)
                or set(excludes.get("caps", ())) & set(capabilities)
                or architecture not in includes.get("arches", [architecture])
                or architecture in excludes.get("arches", [])):
            continue
        names = set(rule["names"])
        if "CAP_SYS_ADMIN" not in capabilities and rule["action"] == "SCMP_ACT_ALLOW":
            if "clone" in names:
                rules.append({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                    {"index": 0, "value": NAMESPACES, "op": "SCMP_CMP_MASKED_EQ"}]})
            names -= OF_ADMIN | {"clone"}
        if names:
            rules.append({"names": sorted(names), "action": rule["action"],
                          "args": rule.get("args") or [],
                          **({"errnoRet": 1} if rule["action"] == "SCMP_ACT_ERRNO" else {})})
    # The C library falls back to clone(2) on ENOSYS.
    if "CAP_SYS_ADMIN" not in capabilities:
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}


@pytest.fixture(scope="module")
def bundle(layout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "bundle"
    (manifest,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = manifest["annotations"]["org.opencontainers.image.ref.name"]
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:{tag}", folder], check=True,
                   capture_output=True)
    (folder / "config.json").rename(folder / "image.json")
    return folder


class Container:
    """What runc runs: like Docker's, on the machine's network."""

    def __init__(self, bundle):
        self.bundle, self.name = bundle, f"cay-test-{os.getpid()}"

    def configure(self, *words, added=(), unmasked=False, user=0, environment=()):
        config = json.loads((self.bundle / "image.json").read_text())
        capabilities = [f"CAP_{name}" for name in (*CAPABILITIES, *added)]
        process, linux = config["process"], config["linux"]
        process["args"] = ["cay-container", *words]
        process["terminal"], process["noNewPrivileges"] = False, False
        process["user"] = {"uid": user, "gid": user}
        process["env"] = [text for text in process["env"] if not text.startswith("HOME=")]
        process["env"] += ["HOME=/home/cay" if user else "HOME=/root", *environment]
        sets = ("bounding",) if user else ("bounding", "effective", "permitted")
        process["capabilities"] = {name: capabilities for name in sets}
        linux["namespaces"] = [each for each in linux["namespaces"] if each["type"] != "network"]
        linux["seccomp"] = filter_of(capabilities)
        if unmasked:
            del linux["maskedPaths"], linux["readonlyPaths"]
        for mount in config["mounts"]:
            if mount["destination"] == "/var/lib/cay":
                mount |= {"type": "tmpfs", "source": "tmpfs", "options": ["mode=700"]}
            elif mount["destination"] == "/sys":  # another network than the container's own
                mount |= {"type": "none", "source": "/sys", "options": ["rbind", "ro"]}
        config["mounts"] = [each for each in config["mounts"]
                            if each["destination"] != "/sys/fs/cgroup"]
        (self.bundle / "config.json").write_text(json.dumps(config))

    def run(self, *words, **options):
        self.configure(*words, **options)
        return subprocess.run(["runc", "run", "--bundle", self.bundle, self.name],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)

    def state(self):
        done = subprocess.run(["runc", "state", self.name], capture_output=True, check=False)
        return json.loads(done.stdout or b"{}").get("status")

    @contextlib.contextmanager
    def serve(self, *words, environment=(), **options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.configure("--listen", address, "--quiet", *words,
                       environment=[f"E2B_API_KEY={KEY}", *environment], **options)
        process = subprocess.Popen(["runc", "run", "--bundle", self.bundle, self.name],
                                   stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://{address}/health").close()
                    break
                time.sleep(0.1)
            yield f"http://{address}"
        finally:
            subprocess.run(["runc", "kill", self.name, "TERM"], check=False)
            process.wait()


@pytest.fixture
def container(bundle):
    made = Container(bundle)
    yield made
    subprocess.run(["runc", "delete", "--force", made.name], check=False, capture_output=True)


def doctor(container, **options):
    done = container.run("cay", "doctor", "-o", "json", **options)
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {each["facility"]: each for each in checks}


def test_doctor_names_what_a_default_container_lacks(container):
    status, checks = doctor(container)
    assert status == 1
    assert "CAP_SYS_ADMIN" in checks["capabilities"]["detail"]
    assert "CAP_SYS_PTRACE" in checks["capabilities"]["detail"]
    assert "container" in checks["capabilities"]["fix"]


FULL = {"added": ("SYS_ADMIN", "SYS_PTRACE"), "unmasked": True}


def test_two_capabilities_and_an_unmasked_proc_isolate_completely(container):
    status, checks = doctor(container, **FULL)
    assert status == 0
    assert checks["sandboxes"]["finding"] == "ok", checks["sandboxes"]


@pytest.mark.parametrize("user", [0, 1000])
def test_the_sdk_uses_the_server_with_the_key_of_the_environment(container, user):
    with container.serve(user=user, **FULL) as url:
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                              env={**os.environ, "E2B_API_KEY": KEY, "E2B_API_URL": url,
                                   "E2B_SANDBOX_URL": url}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["user", "42", "bash", "kept"]


# Which package has each library that cay-store loads, and if its licence is there.
LIBRARIES = """
ldd /usr/local/libexec/cay/cay-store
for file in $(ldd /usr/local/libexec/cay/cay-store | grep -o '/[^ ]*'); do
    package=$(dpkg -S "$(realpath "$file")")
    package=${package%%:*}
    test -s "/usr/share/doc/$package/copyright" && echo "package $package"
done
"""


def test_every_library_of_cay_store_is_there_with_its_license(container):
    done = container.run("sh", "-euc", LIBRARIES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not found" not in done.stdout
    lines = done.stdout.splitlines()
    packages = [line.partition(" ")[2] for line in lines if line.startswith("package ")]
    assert {"libc6", "libpq5", "libseccomp2"} <= set(packages)
    assert len(packages) == sum(" (0x" in line and "vdso" not in line for line in lines)


@pytest.fixture
def database():
    made = Postgres()
    yield made.start()
    made.clean()


def test_the_server_of_the_image_shares_a_database(container, database):
    account = f"cay:{quote(database.PASSWORD)}@"
    variable = f"CAY_STORE={database.url.replace('cay@', account)}"
    with container.serve("--node=naaa", environment=[variable], **FULL) as url:
        request = urllib.request.Request(f"{url}/metrics", headers={"X-API-Key": KEY})

        def is_up():
            assert container.state() == "running"
            with urllib.request.urlopen(request) as reply:
                return "\ncay_store_up 1\n" in reply.read().decode()

        wait_until(is_up, "the server does not reach the database")
    assert database.ask("SELECT count(*) FROM cay.nodes WHERE id = 'naaa'") == [["1"]]


# No script of the packages in the image ran: those of other packages must find what they expect.
INSTALL = """
exec 2>&1
dpkg --audit
apt-get -q update
export DEBIAN_FRONTEND=noninteractive
apt-get -q -y install --no-install-recommends adduser git libpam-runtime
git --version
adduser --disabled-password --comment "" other
awk -F: '$1 == "other" { print "added", $3 }' /etc/passwd
"""


def test_apt_installs_packages_in_the_image(container, bundle):
    shutil.copy("/etc/resolv.conf", bundle / "rootfs/etc/resolv.conf")
    done = container.run("sh", "-euc", INSTALL)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "added 1001"
