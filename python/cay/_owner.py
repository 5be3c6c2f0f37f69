# SPDX-License-Identifier: Apache-2.0
"""What holds something of C's is one thing, however many copies are asked for."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

_Self = TypeVar("_Self", bound="Owner")


class Owner:
    """Frees its pointer once: a copy is the object itself, and there is no pickle."""

    __slots__ = ()

    _instead = "pickle the configuration and make a new one from it"

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, _memo: Any) -> _Self:
        return self

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds open files of this process and cannot be "
            f"pickled; {self._instead}"
        )
