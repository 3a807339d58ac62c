"""The arguments of scorers and of jobs in engines, with their checks."""

import os
from dataclasses import dataclass
from typing import List, Optional, Sequence, Union

from ..errors import InferenceError
from .batches import BATCH_BYTES
from .columns import MISSING

__all__ = ["ERROR_COLUMN", "JobOptions", "ScorerOptions", "check_unique"]

#: The column with the reasons of failed rows.
ERROR_COLUMN = "mlserver_error"

#: The most threads of a child.
_MAX_THREADS = 256


@dataclass(frozen=True)
class ScorerOptions:
    """The arguments of `mlserver.load`, which describes them, except for the location.

    Raises `ValueError` for an invalid one.
    """

    model_name: Optional[str] = None
    version: Optional[str] = None
    outputs: Optional[Sequence[str]] = None
    threads: int = 1
    missing: str = "nan"
    idle: float = 300
    executable: "str | os.PathLike[str] | None" = None

    def __post_init__(self) -> None:
        if isinstance(self.outputs, str):
            raise ValueError(f"outputs is `{self.outputs}`: pass a list of names")
        if not 1 <= self.threads <= _MAX_THREADS:
            raise ValueError(f"threads is {self.threads}: pass 1 to {_MAX_THREADS}")
        if self.missing not in MISSING:
            raise ValueError(f"missing is `{self.missing}`: pass one of {', '.join(MISSING)}")
        if not self.idle > 0:
            raise ValueError(f"idle is {self.idle}: pass a positive number of seconds")
        # A frozen class sets its fields like this. Paths are absolute, because a scorer may be used in another folder.
        object.__setattr__(self, "outputs", None if self.outputs is None else list(self.outputs))
        if self.executable is not None:
            object.__setattr__(self, "executable", os.path.abspath(os.fspath(self.executable)))


@dataclass(frozen=True)
class JobOptions:
    """The arguments of `mlserver.spark.score` about the table, which describes them. Other engines have some of them.

    Raises `ValueError` for an invalid one.
    """

    columns: Optional[Sequence[str]] = None
    keep: Union[str, Sequence[str]] = "*"
    errors: str = "raise"
    batch_bytes: int = BATCH_BYTES

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise ValueError(f"columns is `{self.columns}`: pass a list of names")
        if self.errors not in ("raise", "column"):
            raise ValueError(f"errors is `{self.errors}`: pass `raise` or `column`")
        if self.batch_bytes < 1:
            raise ValueError(f"batch_bytes is {self.batch_bytes}: pass a positive number")

    @property
    def keeps_failures(self) -> bool:
        """Whether failed rows get a reason instead of failing the task."""
        return self.errors == "column"

    def kept(self, names: Sequence[str]) -> List[str]:
        """Returns the columns of a table that the result has. Raises `InferenceError` if there is no such column."""
        kept = list(names) if self.keep == "*" else [self.keep] if isinstance(self.keep, str) else list(self.keep)
        check_unique(kept, names)
        return kept

    def added(self, outputs: Sequence[str], kept: Sequence[str]) -> List[str]:
        """Returns the columns that the result has besides. Raises `InferenceError` if two columns would have one name."""
        added = [*outputs, ERROR_COLUMN] if self.keeps_failures else list(outputs)
        for name in added:
            if name in kept or added.count(name) > 1:
                raise InferenceError(
                    f"the output `{name}` of the model has the name of a column: rename the column, or leave it out with"
                    " `keep`"
                )
        return added


def check_unique(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raises `InferenceError` unless a table has each of these columns once."""
    for name in dict.fromkeys(wanted):
        if names.count(name) != 1:
            problem = "there are two columns" if name in names else "there is no column"
            raise InferenceError(f"{problem} `{name}`: rename one of them, or choose others with `keep` and `columns`")
