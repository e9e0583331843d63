"""Zstandard for long payloads that PostgreSQL can't compress itself: before they are sealed, or leave the table."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType

from tasklib.errors import PayloadUnreadable

COMPRESS_FROM = 2048
"""Shorter payloads gain too little."""
CAPABILITY = "zstd"
"""What a task with compressed arguments requires of a worker."""


def is_available() -> bool:
    """Whether this program can compress and decompress."""
    return _library() is not None


def smaller(data: bytes) -> bytes | None:
    """The data compressed; None if they are short, don't become shorter, or this program has no library for it."""
    if len(data) < COMPRESS_FROM or (zstd := _library()) is None:
        return None
    made: bytes = zstd.compress(data)
    return made if len(made) < len(data) else None


def whole(data: bytes) -> bytes:
    """Compressed data as they were. ValueError if they are damaged; PayloadUnreadable without the library."""
    if (zstd := _library()) is None:
        raise PayloadUnreadable('the payload is compressed by Zstandard: pip install "tasklib-pg[zstd]"')
    try:
        read: bytes = zstd.decompress(data)
    except zstd.ZstdError as e:
        raise ValueError(str(e)) from None
    return read


@cache
def _library() -> ModuleType | None:
    for name in ("compression.zstd", "backports.zstd"):  # the first one comes with Python 3.14
        with suppress(ImportError):
            return import_module(name)
    return None
