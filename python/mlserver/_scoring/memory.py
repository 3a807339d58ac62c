"""The memory file of a child. It has a region for each prediction that runs, and one for the next: two by default."""

import mmap
import os
import tempfile
from typing import List, Optional

__all__ = ["INITIAL_BYTES", "MAX_BYTES", "MemoryFile", "MemoryRegion", "aligned"]

#: The size of the file at first, in bytes. Pages that are never written take no memory.
INITIAL_BYTES = 64 << 20
#: The size that it grows to at most, in bytes. The tensors of a larger call are sent over the socket.
MAX_BYTES = 1 << 30

#: Tensors start at multiples of this, in bytes.
_ALIGNMENT = 8


class MemoryRegion:
    """One region of the file, while a call has it."""

    __slots__ = ("index", "offset", "size", "view")

    def __init__(self, index: int, offset: int, view: memoryview) -> None:
        self.index = index
        #: Where the region starts in the file, in bytes.
        self.offset = offset
        self.view = view
        self.size = len(view)


class MemoryFile:
    """A file without a name, mapped into this process. The child has its descriptor.

    It is in memory on Linux, and in the folder for temporary files elsewhere.

    It has no lock of its own: the child's lock protects it.
    """

    def __init__(self, size: int = INITIAL_BYTES, limit: int = MAX_BYTES, regions: int = 2) -> None:
        """Raises `OSError` if it cannot be created."""
        self.descriptor = _create()
        self._limit = limit
        self._size = 0
        self._map: Optional[mmap.mmap] = None
        self._regions = regions
        self._free: List[int] = list(range(regions))
        try:
            self._resize(size // regions)
        except BaseException:
            self.close()
            raise

    @property
    def largest(self) -> int:
        """The most bytes that a region can have."""
        return self._limit // self._regions

    def take(self, needed: int) -> Optional[MemoryRegion]:
        """Returns a region with at least `needed` bytes, or `None` if one has to be given back first.

        The file only grows while no call has a region of it.
        """
        if needed > self._size:
            if len(self._free) < self._regions:
                return None
            self._resize(min(max(needed, 2 * self._size), self.largest))
        if not self._free:
            return None
        index = self._free.pop()
        start = index * self._size
        assert self._map is not None
        return MemoryRegion(index, start, memoryview(self._map)[start : start + self._size])

    def give_back(self, region: MemoryRegion) -> None:
        """Makes a region available to the next call. The child must not use it any more."""
        self._free.append(region.index)

    def close(self) -> None:
        """Closes the descriptor. The memory is freed when no view of it is left."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _resize(self, size: int) -> None:
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.descriptor, self._regions * size)
        self._map = mmap.mmap(self.descriptor, self._regions * size)
        self._size = size


def _create() -> int:
    """Creates a file without a name, and returns its descriptor, which other programs do not inherit."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mlserver-scoring", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix="mlserver-scoring-")
    os.unlink(path)
    return descriptor


def aligned(size: int) -> int:
    """Returns the next multiple of the alignment of tensors."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
