# SPDX-License-Identifier: Apache-2.0
"""The files of a sandbox of peer.py: the host's, except /home/user and /tmp."""

import grp
import os
import pwd
import shutil
import stat
from datetime import datetime, timezone


class FileError(Exception):
    """A refusal of /files."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


def name_of(table, number):
    try:
        return table(number)[0]
    except KeyError:
        return str(number)


class Files:
    HOME = "/home/user"

    def __init__(self, folder, is_apart):
        self.is_apart = is_apart  # whether commands see the same /home and /tmp
        self.places = {self.HOME: folder + self.HOME}
        if is_apart:
            self.places["/tmp"] = folder + "/tmp"
        for place in self.places.values():
            os.makedirs(place)
        os.chmod(folder, 0o755)
        os.chmod(self.places.get("/tmp", folder), 0o1777 if is_apart else 0o755)

    def home_inside(self):
        return self.HOME if self.is_apart else self.places[self.HOME]

    def tidy(self, path):
        """The path inside the sandbox: absolute and without dots."""
        if path == "~" or path.startswith("~/"):
            path = self.HOME + path[1:]
        return os.path.normpath(os.path.join(self.HOME, path)).replace("//", "/")

    def real(self, path):
        """The path on the host."""
        path = self.tidy(path)
        for inside, here in self.places.items():
            if path == inside or path.startswith(inside + "/"):
                return here + path[len(inside):]
        return path

    def shown(self, real):
        for inside, here in self.places.items():
            if real == here or real.startswith(here + "/"):
                return inside + real[len(here):]
        return real

    def entry(self, path, real):
        about = os.lstat(real)
        is_link = stat.S_ISLNK(about.st_mode)
        kind, mode = "FILE_TYPE_UNSPECIFIED", about.st_mode
        if is_link and os.path.exists(real):
            mode = os.stat(real).st_mode
        if stat.S_ISREG(mode):
            kind = "FILE_TYPE_FILE"
        elif stat.S_ISDIR(mode):
            kind = "FILE_TYPE_DIRECTORY"
        target = os.path.realpath(real)
        return {"name": os.path.basename(path), "type": kind, "path": path,
                "size": str(os.stat(real).st_size if os.path.exists(real) else 0),
                "mode": stat.S_IMODE(mode),
                "permissions": ("L" if is_link else "") + stat.filemode(about.st_mode),
                "owner": name_of(pwd.getpwuid, about.st_uid),
                "group": name_of(grp.getgrgid, about.st_gid),
                "modifiedTime": datetime.fromtimestamp(about.st_mtime, timezone.utc)
                .isoformat().replace("+00:00", "Z"),
                **({"symlinkTarget": self.shown(target)} if is_link else {})}

    # Calls

    def stat(self, path):
        return self.entry(self.tidy(path), self.real(path))

    def make_dir(self, path):
        real = self.real(path)
        if os.path.isdir(real):
            raise FileExistsError
        if os.path.lexists(real):
            raise NotADirectoryError
        os.makedirs(real)
        return self.stat(path)

    def move(self, source, destination):
        real = self.real(destination)
        os.makedirs(os.path.dirname(real), exist_ok=True)
        os.rename(self.real(source), real)
        return self.stat(destination)

    def list_dir(self, path, depth):
        top = self.tidy(path)
        if not os.path.isdir(os.stat(self.real(top)) and self.real(top)):
            raise NotADirectoryError
        return list(self.walk(top, self.real(top), depth))

    def walk(self, path, real, depth):
        for name in os.listdir(real):
            below, inner = os.path.join(path, name), os.path.join(real, name)
            try:
                yield self.entry(below, inner)
            except FileNotFoundError:  # removed meanwhile
                continue
            if depth > 1 and os.path.isdir(inner) and not os.path.islink(inner):
                yield from self.walk(below, inner, depth - 1)

    def remove(self, path):
        real = self.real(path)
        if os.path.isdir(real) and not os.path.islink(real):
            shutil.rmtree(real)
        elif os.path.lexists(real):
            os.unlink(real)

    # Content

    def read(self, path):
        try:
            with open(self.real(path), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise FileError(404, f"path '{path}' does not exist") from error
        except IsADirectoryError as error:
            raise FileError(400, f"path '{path}' is a directory") from error
        except OSError as error:
            raise FileError(500, f"error opening file: {error.strerror.lower()}") from error

    def write(self, path, data):
        if not path:
            raise FileError(400, "path is required")
        real = self.real(path)
        try:
            os.makedirs(os.path.dirname(real), exist_ok=True)
            with open(real, "wb") as file:
                file.write(data)
        except IsADirectoryError as error:
            raise FileError(400, f"path '{path}' is a directory") from error
        except OSError as error:
            status = 507 if error.errno == 28 else 500
            raise FileError(status, f"error writing: {error.strerror.lower()}") from error
        path = self.tidy(path).encode(errors="surrogateescape").decode(errors="replace")
        return {"path": path, "name": os.path.basename(path), "type": "file"}
