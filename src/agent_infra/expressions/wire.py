"""The protobuf wire format, as far as CEL's syntax trees need it (https://protobuf.dev/programming-guides/encoding/).

A message is a list of (field number, value): an int for varints, bytes for everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

WireValue: TypeAlias = int | bytes
_VARINT, _FIXED64, _LENGTH = 0, 1, 2


class Fixed64(bytes):
    """Eight bytes that are written as they are, without a length: a double."""


def read_message(raw: bytes) -> Iterator[tuple[int, WireValue]]:
    """The fields of a message, in order. Raises ValueError for a wire type that CEL doesn't use."""
    at = 0
    while at < len(raw):
        tag, at = _read_varint(raw, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(raw, at)
            yield tag >> 3, value
            continue
        if kind == _FIXED64:
            length = 8
        elif kind == _LENGTH:
            length, at = _read_varint(raw, at)
        else:
            raise ValueError(f"wire type {kind} is not among those of CEL's trees")
        yield tag >> 3, raw[at : at + length]
        at += length


def write_message(*fields: tuple[int, WireValue]) -> bytes:
    """The bytes of a message."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            _write_varint(out, number << 3 | _VARINT)
            _write_varint(out, value & (1 << 64) - 1)
        elif isinstance(value, Fixed64):
            _write_varint(out, number << 3 | _FIXED64)
            out += value
        else:
            _write_varint(out, number << 3 | _LENGTH)
            _write_varint(out, len(value))
            out += value
    return bytes(out)


def signed(value: int) -> int:
    """A varint read as a signed 64-bit number."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
