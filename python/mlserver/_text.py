"""Text that people have written, in the encoding of their editors.

Everything that reads such text starts here, so that a byte-order mark never becomes a part of the first key, and a file in
another encoding is called that instead of damaged. The server reads text in the same way.
"""

import codecs
import json
import os
from typing import Any, Callable, Optional, Union

Path = Union[str, "os.PathLike[str]"]

#: The mark that editors on Windows write in front of UTF-8.
_MARK = codecs.BOM_UTF8


class TextError(ValueError):
    """Raised for bytes that are not text in UTF-8."""


def without_mark(content: Any) -> Any:
    """Returns what follows a byte-order mark, whose encoding is not checked any further.

    Raises `TextError` if the first bytes are those of another Unicode encoding, with or without a mark.
    """
    start = bytes(content[:4])
    if start.startswith(_MARK):
        return content[len(_MARK) :]
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        raise TextError("it is UTF-32 text: save it as UTF-8")
    # Text begins with an ASCII character in every format that is read here.
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or (len(start) > 1 and (start[0] == 0) != (start[1] == 0)):
        raise TextError("it is UTF-16 text: save it as UTF-8")
    return content


def utf8(content: Any) -> str:
    """Returns text in UTF-8, without its byte-order mark. Raises `TextError` if it is in another encoding."""
    text = without_mark(content)
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError as error:
        position = len(content) - len(text) + error.start
        raise TextError(f"it is not UTF-8 text: byte {position} is invalid") from None


def read_json(content: Any, parse_constant: Optional[Callable[[str], Any]] = None) -> Any:
    """Parses a body of JSON. Raises `ValueError` if it is not JSON or not in UTF-8."""
    return json.loads(utf8(content), parse_constant=parse_constant)


def read_file(path: Path) -> str:
    """Returns the text of a file. Raises `TextError` with its path if it is in another encoding than UTF-8."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        return utf8(content)
    except TextError as error:
        raise TextError(f"cannot read `{os.fspath(path)}`: {error}") from None


def read_json_file(path: Path) -> Any:
    """Parses a file of JSON. Raises `TextError` with its path if it is in another encoding than UTF-8."""
    return json.loads(read_file(path))


__all__ = ["TextError", "read_file", "read_json", "read_json_file", "utf8", "without_mark"]
