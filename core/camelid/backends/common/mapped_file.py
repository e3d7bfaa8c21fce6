"""A mapped file of weights, and whether its bytes are still those that were mapped."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.errors import DeviceLostError, ModelFormatError

U8: TypeAlias = npt.NDArray[np.uint8]


class MappedFile:
    """The bytes of a file. A file that was replaced by renaming another keeps its bytes here.

    A file that is written in place changes its weights: `check` notices a new size or time of modification.
    Raises ModelFormatError if the file cannot be read or is empty.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with Path(path).open("rb") as file:
                self.pages: U8 = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
                self._file = os.dup(file.fileno())
        except (OSError, ValueError) as error:  # ValueError: the file is empty now
            raise ModelFormatError(
                f"{path}: cannot be read: {error}; did the file change meanwhile?", path=path
            ) from error
        weakref.finalize(self, os.close, self._file)
        self._state = self._now()

    def check(self) -> None:
        """Raises DeviceLostError if the file was written since."""
        if self._now() != self._state:
            raise DeviceLostError(
                f"{self.path}: the file was written while its weights were in use; load the model again, and "
                "replace a file by renaming another",
                reason="file written",
            )

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self._file)
        return found.st_size, found.st_mtime_ns
