"""The codec of dates and times as ISO 8601 text."""

import datetime
import re
import sys
from typing import Any, List, Union

from ..types import RequestInput, ResponseOutput
from .base import InputCodec, register_input_codec
from .lists import as_list, as_values, is_list_of
from .utils import as_input, bytes_output

__all__ = ["DatetimeCodec"]

_ENCODING = "ascii"

_ISO_8601 = re.compile(
    r"(?P<year>\d{4})-?(?:W(?P<week>\d\d)(?:-?(?P<weekday>\d))?|(?P<month>\d\d)-?(?P<day>\d\d))"
    r"(?:.(?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d(?:\.\d+)?)?)?)?)?"
)


def parse(text: str) -> datetime.datetime:
    """Parses a time in ISO 8601, in all formats that Python 3.11 supports, on any version of Python.

    Raises `ValueError` for any other text.
    """
    if sys.version_info >= (3, 11):
        return datetime.datetime.fromisoformat(text)
    found = _ISO_8601.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid isoformat string: {text!r}")
    part = found.groupdict()
    if part["week"]:
        year_and_week = f"{part['year']}-{part['week']}-{part['weekday'] or 1}"
        date = datetime.datetime.strptime(year_and_week, "%G-%V-%u").date()
    else:
        date = datetime.date(int(part["year"]), int(part["month"]), int(part["day"]))
    time = datetime.time(
        int(part["hour"] or 0),
        int(part["minute"] or 0),
        int(part["second"] or 0),
        int(f"{part['fraction'] or '0':0<6.6}"),
    )
    return datetime.datetime.combine(date, time, _zone(part["zone"]))


def _zone(text: Any) -> Any:
    if text is None:
        return None
    if text == "Z":
        return datetime.timezone.utc
    digits = text[1:].replace(":", "")
    hours, minutes, seconds = digits[:2], digits[2:4] or "0", digits[4:] or "0"
    offset = datetime.timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return datetime.timezone(-offset if text[0] == "-" else offset)


def _decode(elem: Union[bytes, str, datetime.datetime]) -> datetime.datetime:
    if isinstance(elem, datetime.datetime):
        return elem
    return parse(elem.decode(_ENCODING) if isinstance(elem, bytes) else elem)


def _to_iso(elem: Union[str, datetime.datetime]) -> str:
    return elem if isinstance(elem, str) else elem.isoformat()


@register_input_codec
class DatetimeCodec(InputCodec):
    """A BYTES tensor of ISO 8601 as a list of times."""

    ContentType = "datetime"
    TypeHint = List[Union[str, datetime.datetime]]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_list_of(payload, datetime.datetime)

    @classmethod
    def encode_output(
        cls, name: str, payload: List[Union[str, datetime.datetime]], use_bytes: bool = True, **kwargs: Any
    ) -> ResponseOutput:
        encoded = [_to_iso(elem) for elem in as_values(payload, str, datetime.datetime)]
        data = [elem.encode(_ENCODING) for elem in encoded] if use_bytes else encoded
        return bytes_output(name, data, cls.ContentType)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> List[datetime.datetime]:
        return [_decode(elem) for elem in as_list(response_output.data)]

    @classmethod
    def encode_input(
        cls, name: str, payload: List[Union[str, datetime.datetime]], use_bytes: bool = True, **kwargs: Any
    ) -> RequestInput:
        return as_input(cls.encode_output(name, payload, use_bytes))

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[datetime.datetime]:
        return [_decode(elem) for elem in as_list(request_input.data)]
