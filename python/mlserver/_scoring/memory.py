"""The memory file of a child: its two halves hold the tensors of two calls at a time."""

import mmap
import os
from typing import List, Optional

__all__ = ["INITIAL_BYTES", "MAX_BYTES", "MemoryFile", "MemoryHalf", "aligned"]

#: The size of the file at first, in bytes. Pages that are never written take no memory.
INITIAL_BYTES = 64 << 20
#: The size that it grows to at most, in bytes. The tensors of a larger call are sent over the socket.
MAX_BYTES = 1 << 30

#: Tensors start at multiples of this, in bytes.
_ALIGNMENT = 8


class MemoryHalf:
    """One half of the file, while a call has it."""

    __slots__ = ("index", "offset", "size", "view")

    def __init__(self, index: int, offset: int, view: memoryview) -> None:
        self.index = index
        #: Where the half starts in the file, in bytes.
        self.offset = offset
        self.view = view
        self.size = len(view)


class MemoryFile:
    """An anonymous file in memory, mapped into this process. The child has its descriptor.

    It has no lock of its own: the child's lock protects it.
    """

    def __init__(self, size: int = INITIAL_BYTES, limit: int = MAX_BYTES) -> None:
        """Raises `OSError` or `AttributeError` if the system has no such files."""
        self.descriptor = os.memfd_create("mlserver-scoring", os.MFD_CLOEXEC)
        self._limit = limit
        self._half = 0
        self._map: Optional[mmap.mmap] = None
        self._free: List[int] = [0, 1]
        try:
            self._resize(size // 2)
        except BaseException:
            self.close()
            raise

    @property
    def largest(self) -> int:
        """The most bytes that a half can have."""
        return self._limit // 2

    def take(self, needed: int) -> Optional[MemoryHalf]:
        """Returns a half with at least `needed` bytes, or `None` if one has to be given back first.

        The file only grows while no call has a half of it.
        """
        if needed > self._half:
            if len(self._free) < 2:
                return None
            self._resize(min(max(needed, 2 * self._half), self.largest))
        if not self._free:
            return None
        index = self._free.pop()
        start = index * self._half
        assert self._map is not None
        return MemoryHalf(index, start, memoryview(self._map)[start : start + self._half])

    def give_back(self, half: MemoryHalf) -> None:
        """Makes a half available to the next call. The child must not use it any more."""
        self._free.append(half.index)

    def close(self) -> None:
        """Closes the descriptor. The memory is freed when no view of it is left."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _resize(self, half: int) -> None:
        half = -(-half // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.descriptor, 2 * half)
        self._map = mmap.mmap(self.descriptor, 2 * half)
        self._half = half


def aligned(size: int) -> int:
    """Returns the next multiple of the alignment of tensors."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
