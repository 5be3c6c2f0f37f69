# SPDX-License-Identifier: Apache-2.0
"""The packages of the other processor than this machine's: arm64 on x86_64, amd64 on arm64.

They are cross-built.  Here qemu's user mode runs their programs with the libraries of an
unpacked Debian.  It has no clone3, seccomp and Landlock, in Debian 12 no openat2 either, and
without binfmt_misc a program cannot start another one: so the programs, the library and the
Python package start and answer, but create no sandbox.  The unit tests that need none of these
run, too.  `ARCH=arm64 tools/vm` runs the tests of sandboxes on an emulated machine."""

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import PACKAGES, ROOT, ROOTS

PROCESSOR, ARCHITECTURE, MACHINE = {
    "x86_64": ("aarch64", "arm64", 183), "aarch64": ("x86_64", "amd64", 62)}[platform.machine()]
MIRROR = os.environ.get("CAY_DEBIAN_MIRROR", "http://deb.debian.org/debian")
QEMU = f"qemu-{PROCESSOR}-static"
# Those that the Debian packages depend on, and Python.
LIBRARIES = ("libarchive13,libfyaml0,libgnutls30,libjansson4,libmicrohttpd12,libpcre2-8-0,"
             "libseccomp2,libsqlite3-0,libuv1,python3,python3-venv")


MISSING = "run `make packages CAY_PROCESSORS='x86_64 aarch64'`"


def package(pattern):
    found = list(PACKAGES.glob(pattern))
    assert len(found) == 1, f"{pattern}: {MISSING}"
    return found[0]


def unpack_wheel(folder):
    """Installs it as pip does on such a machine, with what it requires."""
    wheel = package(f"cay-*-manylinux_*_{PROCESSOR}.whl")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:",
                    "--python-version=3.11", f"--platform=manylinux2014_{PROCESSOR}",
                    f"--platform=manylinux_2_34_{PROCESSOR}", "--target", folder, wheel],
                   check=True)


def unpack_tarball(folder):
    with tarfile.open(package(f"cay-*-linux-{PROCESSOR}.tar.gz")) as archive:
        archive.extractall(folder)
    (top,) = folder.iterdir()
    for path in top.iterdir():
        path.rename(folder / path.name)


def unpack_debian(folder):
    for name in ("cay", "libcay0", "libcay-dev"):
        subprocess.run(["dpkg-deb", "--extract", package(f"{name}_*_{ARCHITECTURE}.deb"), folder],
                       check=True)


@pytest.fixture(scope="session")
def share(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    for kind, unpack in (("wheel", unpack_wheel), ("tarball", unpack_tarball),
                         ("debian", unpack_debian)):
        (folder / kind).mkdir()
        unpack(folder / kind)
    return folder


@pytest.fixture(scope="session")
def system():
    """An unpacked Debian of the processor; no program of it ran."""
    root = ROOTS / f"unpacked-{ARCHITECTURE}"
    if root.exists():
        return root
    ROOTS.mkdir(exist_ok=True)
    part = root.with_name(f"{root.name}.part")
    subprocess.run(["rm", "-rf", "--one-file-system", part], check=True)
    subprocess.run(["debootstrap", "--foreign", f"--arch={ARCHITECTURE}", "--variant=minbase",
                    f"--include={LIBRARIES}", "bookworm", part, MIRROR], check=True,
                   stdout=subprocess.PIPE)
    # Not `dpkg-deb --extract`, which replaces the link /lib by a directory.
    unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$0"'
    for path in sorted((part / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["bash", "-euo", "pipefail", "-c", unpack, part, path], check=True)
    shutil.copy(shutil.which(QEMU), part / "qemu")
    (part / "proc").unlink()  # debootstrap links it to /proc
    (part / "proc").mkdir()
    (part / "share").mkdir()
    part.rename(root)
    return root


def emulate(system, share, *command, status=0, **environ):
    """Runs a program of the system, or of the directory that is /share in it."""
    script = """
mount --bind "$1" "$0/share"
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
mount -t tmpfs -o mode=1777 tmp "$0/tmp"
shift
unshare --root "$0" --wd /tmp /qemu "$@" || exit $?
"""
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private",
         "--", "sh", "-euc", script, system, share, *command],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environ},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def run(system, share):
    return functools.partial(emulate, system, share)


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """The root file system of the image."""
    root = tmp_path_factory.mktemp("container")
    with tarfile.open(package(f"cay-*-image-{PROCESSOR}.tar")) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        for layer in manifest["Layers"]:
            subprocess.run(["tar", "-xz", "-C", root], check=True,
                           input=archive.extractfile(layer).read())
    shutil.copy(shutil.which(QEMU), root / "qemu")
    (root / "share").mkdir()
    return root


CERTIFICATES = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)"


def test_the_programs_of_the_image_start(container, tmp_path):
    def start(*words):
        return emulate(container, tmp_path, *words)
    assert start("/usr/local/libexec/cay/cay-full", "--version").startswith("cay ")
    assert start("/usr/bin/python3", "-c", CERTIFICATES) == "True\n"
    assert start("/usr/bin/bash", "-c", "echo bash") == "bash\n"
    assert start("/usr/bin/awk", "BEGIN { print 6 * 7 }") == "42\n"
    assert start("/usr/bin/dpkg", "--print-architecture") == f"{ARCHITECTURE}\n"
    assert start("/usr/bin/dpkg", "--audit") == ""


def machines(data):
    """The processors of the ELF files in the data: PID 1 is in the library, for example."""
    return {int.from_bytes(data[found.start() + 18:found.start() + 20], "little")
            for found in re.finditer(rb"\x7fELF\x02\x01\x01", data)}


@pytest.mark.parametrize("kind, count", [("wheel", 4), ("tarball", 3), ("debian", 4)])
def test_every_program_is_for_the_processor(share, kind, count):
    ours = [path for path in (share / kind).rglob("*cay*")
            if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(ours) == count, ours
    for path in ours:
        assert machines(path.read_bytes()) == {MACHINE}, path


def test_the_library_contains_its_programs(share):
    data = (share / "wheel/cay/libcay.so").read_bytes()
    # Itself, PID 1, cay-net, cay-net-tls and warm-save.so.
    assert len(re.findall(rb"\x7fELF\x02\x01\x01", data)) == 5


def test_packages_without_programs_exist_once():
    assert [path.name.split("_")[0] for path in PACKAGES.glob("*_all.deb")] == ["python3-cay"]


@pytest.mark.parametrize("folder", ["wheel", "tarball", "debian/usr"])
def test_the_programs_start(run, folder):
    full = f"/share/{folder}/libexec/cay/cay-full"
    assert re.fullmatch(r"cay [0-9.]+\n", run(full, "--version"))
    assert "doctor" in run(full, "--help")
    assert run(full, "config", "schema")[0] == "{"
    assert "--listen" in run(f"/share/{folder}/libexec/cay/cay-serve", "serve", "--help")
    # It has no `--version` of its own: it executes cay-full.
    assert run(f"/share/{folder}/bin/cay", "ls").startswith("ID  NAME")


@pytest.mark.parametrize("folder", ["wheel", "tarball", "debian/usr"])
def test_doctor_finds_what_the_emulator_lacks(run, folder):
    report = run(f"/share/{folder}/libexec/cay/cay-full", "doctor", status=1)
    assert re.search(rf"^ok +kernel +Linux .* on {PROCESSOR}$", report, re.M)
    assert re.search(r"^missing +seccomp ", report, re.M)
    assert "To fix:" in report


def test_a_sandbox_that_cannot_start_is_an_error(run):
    assert run("/share/tarball/bin/cay", "run", "--", "true", status=125) == ""


def test_python_loads_the_library(run):
    program = """
import cay, cay.inspect, cay.nexau, platform
from importlib.metadata import version
assert version("cay") == cay.__version__
assert len(cay.doctor()) > 20
try:
    cay.Sandbox.create(ephemeral=True)
except cay.CayError as error:
    print(platform.machine(), type(error).__name__)
"""
    said = run("/usr/bin/python3", "-c", program, PYTHONPATH="/share/wheel")
    assert said == f"{PROCESSOR} SandboxUnavailableError\n"


@pytest.fixture(scope="session")
def tests():
    """All programs of the sources, compiled in the system that package/deb made."""
    root = ROOT / "build-package" / "debian" / ARCHITECTURE
    assert root.exists(), MISSING
    build = f"build-{ARCHITECTURE}"
    script = f"""
cd /share
test -e {build}/build.ninja ||
    meson setup {build} --cross-file tools/cross-{ARCHITECTURE}.ini -Dwerror=true
ninja -j2 -C {build} all meson-test-prereq
"""
    done = subprocess.run([ROOT / "tests/packages/in-root", root, "sh", "-euc", script],
                          env={**os.environ, "SHARE": str(ROOT)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10000:] + done.stderr
    return ROOT / build / "tests"


@pytest.mark.parametrize("name", [
    "array", "backend", "buf", "config", "config-expand", "config-fields", "config-json",
    "config-keys", "e2b-wire", "env", "error", "execution", "glob", "hash", "json", "nearest",
    "passwd", "policy-grant", "policy-new", "policy-place", "policy-rules", "rights", "ring",
    "state-home", "tail", "tar-filter", "text", "text-index", "utf8", "utf8-widen"])
def test_unit_tests_pass(system, tests, name):
    assert "\nok 1 " in emulate(system, tests, f"/share/test-{name}")
