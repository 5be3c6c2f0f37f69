# SPDX-License-Identifier: Apache-2.0
"""The ctypes bindings of libcay: a module per header, and all their names here."""

from cay._c.agent import *
from cay._c.approval import *
from cay._c.code import *
from cay._c.config import *
from cay._c.files import *
from cay._c.library import *
from cay._c.pool import *
from cay._c.sandbox import *
from cay._c.session import *
from cay._c.snapshot import *
from cay._c.trial import *
from cay._c.volume import *
