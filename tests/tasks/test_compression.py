"""Compressing what is sealed: smaller, the same again, and never required where it can't be read."""

from __future__ import annotations

import os
from base64 import b64decode

import pytest

from tasklib import PayloadDamaged, PayloadUnreadable
from tasklib.tasks import compression
from tasklib.tasks.keyring import Keyring
from tasklib.tasks.sealing import TaskSeal, required_by

RING = Keyring([("a", bytes(32)), ("b", bytes(range(32)))])
LONG = '{"text": "' + "the same again and again, " * 200 + '"}'


def seal(key: str = "a", *, compresses: bool = True) -> TaskSeal:
    return TaskSeal(RING, key, "018f0000-0000-7000-8000-000000000001", "pay", compresses)


def test_a_long_text_is_sealed_compressed_and_opens_as_it_was() -> None:
    sealed = seal().seal("kwargs", LONG)
    assert len(b64decode(sealed)) < len(LONG) // 5
    assert seal().open("kwargs", sealed) == LONG
    assert required_by(sealed) == ["key:a", "zstd"]


@pytest.mark.parametrize(
    "text",
    [LONG[: compression.COMPRESS_FROM - 1], os.urandom(3000).hex()[: compression.COMPRESS_FROM - 1], ""],
    ids=["short", "random", "empty"],
)
def test_a_short_text_is_sealed_as_it_is(text: str) -> None:
    sealed = seal().seal("kwargs", text)
    assert len(b64decode(sealed)) == len(text) + 3 + 16 + 12 + 16
    assert required_by(sealed) == ["key:a"]


def test_what_does_not_become_smaller_stays_as_it_is() -> None:
    assert compression.smaller(os.urandom(5000)) is None


def test_compression_can_be_switched_off() -> None:
    sealed = seal(compresses=False).seal("kwargs", LONG)
    assert len(b64decode(sealed)) > len(LONG)
    assert seal().open("kwargs", sealed) == LONG


def test_another_key_takes_it_over_compressed_as_it_was() -> None:
    sealed = seal().seal("kwargs", LONG)
    moved = seal().moved("kwargs", sealed, seal("b", compresses=False))
    assert seal("b").open("kwargs", moved) == LONG
    assert required_by(moved) == ["key:b", "zstd"]
    assert len(moved) == len(sealed)


def test_the_mark_of_compression_can_not_be_changed() -> None:
    from base64 import b64encode

    raw = bytearray(b64decode(seal().seal("kwargs", LONG)))
    raw[0] = 1
    with pytest.raises(PayloadDamaged):
        seal().open("kwargs", b64encode(bytes(raw)).decode())


def test_without_the_library_nothing_is_compressed_and_reading_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compressed = seal().seal("kwargs", LONG)
    monkeypatch.setattr(compression, "_library", lambda: None)
    assert required_by(seal().seal("kwargs", LONG)) == ["key:a"]
    with pytest.raises(PayloadUnreadable, match=r"pip install .tasklib-pg\[zstd\]"):
        seal().open("kwargs", compressed)
