# SPDX-License-Identifier: Apache-2.0
"""A small system for templates: some programs of this machine with their libraries."""

import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("bash sh cat chmod chown cp curl date echo env false git grep head id ln ls mkdir mv "
            "pgrep printf pwd readlink rm sed seq sleep sort ss stat tail test touch tr true "
            "useradd wc whoami").split()


def libraries(path):
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def make_system(root):
    """Fills the directory; users are added by Cay."""
    for name in ("usr/bin", "usr/lib", "etc", "tmp", "home", "root", "proc", "dev", "sys", "run",
                 "var/tmp"):
        (root / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for link in ("bin", "sbin", "lib", "lib64"):
        target = "usr/bin" if link.endswith("bin") else "usr/lib"
        (root / link).symlink_to(target)
    (root / "usr/sbin").symlink_to("bin")
    (root / "usr/lib64").symlink_to("lib")
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        assert path, f"this machine has no {name}"
        shutil.copy2(path, root / "usr/bin" / name)
        for library in libraries(path):
            to = root / "usr/lib" / Path(library).name
            if not to.exists():
                shutil.copy2(library, to)
    triplet = next(Path("/lib").glob("*-linux-gnu")).name
    (root / "usr/lib" / triplet).symlink_to(".")
    (root / "etc/profile").write_text("export PATH=/usr/local/bin:/usr/bin:/bin\n")
    for name in ("login.defs", "default/useradd"):
        source = Path("/etc") / name
        if source.exists():
            (root / "etc" / name).parent.mkdir(exist_ok=True)
            shutil.copy2(source, root / "etc" / name)
    return root
