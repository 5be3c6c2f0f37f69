# SPDX-License-Identifier: Apache-2.0
"""The source distribution: built without a network, with what Debian has."""

import subprocess
import tarfile

import pytest
from conftest import ROOT

TOOLS = [word for line in (ROOT / "tools" / "packages").read_text(encoding="utf-8").splitlines()
         if line.startswith("build ") for word in line.split()[1:]]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    folder.chmod(0o755)
    subprocess.run([ROOT / "package" / "sdist", folder], check=True, stdout=subprocess.DEVNULL)
    (path,) = folder.iterdir()
    return path


def test_debian_13_builds_it_without_a_network(trixie, sdist):
    done = trixie.run(f"""
apt-get -qq update
apt-get -qq -y install --no-install-recommends {" ".join(TOOLS)} python3-venv python3-pydantic \\
    python3-yaml >/dev/null
python3 -m venv --system-site-packages /tmp/venv
cd /tmp
unshare --net venv/bin/pip install --no-build-isolation --no-index -v /share/{sdist.name} \\
    >/tmp/log 2>&1 || {{ tail -40 /tmp/log; exit 1; }}
grep -q -F '[100/' /tmp/log || echo 'no progress'
PATH=/tmp/venv/bin:$PATH
cay run -- echo run
cay config schema >/tmp/schema
head -c 1 /tmp/schema
echo
test -x /tmp/venv/libexec/cay/cay-serve -a -e /tmp/venv/share/man/man1/cay.1
python - <<END
import cay
from importlib.metadata import version
assert version("cay") == cay.__version__
with cay.Sandbox.create(ephemeral=True) as sandbox:
    print(sandbox.exec(["echo", "inside"]).stdout, end="")
END
""", sdist.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["run", "{", "inside"]


def test_debian_12_without_a_compiler_names_the_packages(python, sdist):
    done = python.run(f"""
python3 -m venv /tmp/venv
unshare --net /tmp/venv/bin/pip install --no-build-isolation --no-index --no-deps \\
    /share/{sdist.name} || echo refused
""", sdist.parent)
    assert done.stdout.endswith("refused\n")
    said = (done.stdout + done.stderr).splitlines()
    assert any("apt install gcc meson ninja-build pkg-config scdoc" in line for line in said)
    assert not any("meson setup" in line for line in said)


def test_an_unpacked_one_packs_itself_the_same(sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="tar")
    (tree,) = tmp_path.iterdir()
    (tree / "dist").mkdir()
    subprocess.run([tree / "package" / "sdist", tree / "dist"], check=True,
                   stdout=subprocess.DEVNULL)
    assert (tree / "dist" / sdist.name).read_bytes() == sdist.read_bytes()
    assert (tree / "debian" / "control").exists() and (tree / "tests" / "meson.build").exists()
