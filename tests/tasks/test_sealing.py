"""Sealed payloads: the format, attacks on it, and keyrings."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tasklib import Config, Limit, Sealed, task
from tasklib.errors import ConfigError, InvalidTaskFunction, KeyMissing, PayloadDamaged
from tasklib.tasks.keyring import Keyring, keyring_of
from tasklib.tasks.sealing import (
    Sealing,
    TaskSeal,
    hashed_key,
    key_id_of,
    message_key,
    seal_of,
    sealed_arguments,
    shown_error,
)

ID, OTHER = "018f0000-0000-7000-8000-000000000001", "018f0000-0000-7000-8000-000000000002"
RING = Keyring([("new", bytes(range(32))), ("old", bytes(32))])


def seal(task_id: str = ID, name: str = "pay", key: str = "new", ring: Keyring = RING) -> TaskSeal:
    return TaskSeal(ring, key, task_id, name)


def test_what_is_sealed_opens_for_the_same_task_and_column_and_reads_as_it_was() -> None:
    sealed = seal().seal("kwargs", '{"iban": "DE02 é \U0001f600"}')
    assert seal().open("kwargs", sealed) == '{"iban": "DE02 é \U0001f600"}'
    assert key_id_of(sealed) == "new"
    raw = b64decode(sealed)
    assert (raw[0], raw[1], raw[2:5]) == (1, 3, b"new")
    assert len(raw) == 2 + 3 + 16 + 12 + len('{"iban": "DE02 é \U0001f600"}'.encode()) + 16


@pytest.mark.parametrize(
    "elsewhere", [seal(OTHER), seal(name="refund"), seal(key="old"), seal(ring=Keyring([("new", os.urandom(32))]))]
)
def test_it_opens_for_no_other_task_name_or_key(elsewhere: TaskSeal) -> None:
    with pytest.raises(PayloadDamaged):
        elsewhere.open("kwargs", seal().seal("kwargs", "{}"))


def test_it_opens_in_no_other_column() -> None:
    sealed = seal().seal("kwargs", '{"value": 1}')
    for column in ("result", "progress", "error"):
        with pytest.raises(PayloadDamaged):
            seal().open(column, sealed)


def opened(text: str) -> str:
    return seal_of(RING, ID, "pay", text).open("kwargs", text)


def test_no_bit_of_it_can_be_changed() -> None:
    raw = b64decode(seal().seal("kwargs", '{"a": 1}'))
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((PayloadDamaged, KeyMissing)):
            opened(b64encode(changed).decode())


def test_no_beginning_of_it_and_nothing_longer_opens() -> None:
    raw = b64decode(seal().seal("kwargs", '{"a": 1}'))
    for cut in (*(raw[:n] for n in range(len(raw))), raw + b"\0"):
        with pytest.raises((PayloadDamaged, KeyMissing)):
            opened(b64encode(cut).decode())


@pytest.mark.parametrize("text", ["", "?", "AAAA", "é", "AQ==", b64encode(b"\x01\xff" + bytes(100)).decode()])
def test_what_is_no_ciphertext_is_refused(text: str) -> None:
    with pytest.raises(PayloadDamaged, match="no readable form"):
        key_id_of(text)


def test_a_key_that_is_not_here_is_named() -> None:
    sealed = seal().seal("kwargs", "{}")
    for ring in (None, Keyring([("other", bytes(32))])):
        with pytest.raises(KeyMissing, match="the key 'new' is not in this program's keyring") as e:
            seal_of(ring, ID, "pay", sealed)
        assert e.value.key_id == "new"


def test_the_message_key_is_hkdf() -> None:
    key, salt = os.urandom(32), os.urandom(16)
    assert message_key(key, salt) == HKDF(SHA256(), 32, salt, b"tasklib sealed payload 1").derive(key)


@pytest.mark.long
def test_a_million_messages_share_neither_key_nor_nonce() -> None:
    one = seal()
    seen = {b64decode(one.seal("kwargs", "{}"))[5:33] for _ in range(1_000_000)}
    assert len(seen) == 1_000_000


def test_single_fields_are_sealed_and_the_others_stay_readable() -> None:
    sealing = Sealing(frozenset({"iban"}))
    stored = seal().arguments('{"order": 7, "iban": "DE02"}', sealing)
    assert json.loads(stored)["order"] == 7
    assert "DE02" not in stored
    assert json.loads(seal().opened_arguments(stored)) == {"order": 7, "iban": "DE02"}
    assert sealed_arguments('{"order": 7}') is None


def test_an_error_keeps_its_type_and_hides_the_rest() -> None:
    stored = seal().error("Traceback ...\nValueError: DE02 is no IBAN")
    assert stored.endswith("\nValueError")
    assert "DE02" not in stored
    assert seal().opened_error(stored) == "Traceback ...\nValueError: DE02 is no IBAN"
    assert shown_error(stored) == "ValueError: •••"
    assert (shown_error(None), shown_error("KeyError: 1")) == (None, "KeyError: 1")


def test_hashed_keys_are_equal_for_equal_keys_and_tell_nothing_without_the_ring() -> None:
    assert hashed_key(RING, "new", "pay", "k") == hashed_key(RING, "new", "pay", "k")
    others = {hashed_key(RING, *each) for each in (("new", "pay", "l"), ("new", "x", "k"), ("old", "pay", "k"))}
    assert len({*others, hashed_key(RING, "new", "pay", "k")}) == 4


# ---- functions ----


def test_a_function_says_what_it_seals() -> None:
    @task
    def fields(order: int, iban: Sealed[str], note: Sealed[str] | None = None) -> None: ...

    @task(sealed=True)
    def whole(order: int) -> None: ...

    @task
    def plain(order: int) -> None: ...

    assert fields.sealing == Sealing(frozenset({"iban", "note"}))
    assert whole.sealing == Sealing(None)
    assert plain.sealing is None


def test_combinations_that_would_store_something_clear_are_refused() -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"schedule": "0 3 * * *"}, "can't have a schedule"),
        ({"serial_key": "a"}, "serial_key names a, which is sealed"),
        ({"share": "a"}, "share names a, which is sealed"),
        ({"limits": [Limit("x", key="a", max_running=1)]}, "names a, which is sealed"),
        ({"sealed": "yes"}, "sealed must be True, False or 'new'"),
    ]
    for settings, words in refusals:

        async def function(a: str = "") -> None: ...

        given: dict[str, Any] = {"sealed": True, **settings}
        with pytest.raises(InvalidTaskFunction, match=words):
            task(name="f", **given)(function)

    def contradiction(a: Sealed[str]) -> None: ...

    with pytest.raises(InvalidTaskFunction, match="contradicts Sealed"):
        task(sealed=False)(contradiction)


# ---- keyrings ----


def test_keys_come_from_a_text_a_file_pairs_or_a_function(tmp_path: Path) -> None:
    one, two = (b64encode(os.urandom(32)).decode() for _ in range(2))
    text = f"a:{one}, b:{two}"
    (tmp_path / "keys").write_text(f"# the new one\na:{one}\n\nb:{two} # the old one\n")
    pairs = [("a", b64decode(one)), ("b", b64decode(two))]
    rings = [
        keyring_of(Config("postgresql://", keys=text)),
        keyring_of(Config("postgresql://", keys_file=str(tmp_path / "keys"))),
        keyring_of(Config("postgresql://", keys=pairs)),
        keyring_of(Config("postgresql://", keys=lambda: pairs)),
        keyring_of(Config("postgresql://", keys=lambda: text)),
        keyring_of(Config.from_env({"TASKLIB_DATABASE_URL": "postgresql://", "TASKLIB_KEYS": text})),
    ]
    for ring in rings:
        assert ring is not None
        assert (ring.first, list(ring), ring["b"]) == ("a", ["a", "b"], b64decode(two))
    assert keyring_of(Config("postgresql://")) is None


def test_keys_are_in_no_representation() -> None:
    secret = b64encode(bytes(range(32))).decode()
    config = Config("postgresql://", keys=f"a:{secret}")
    assert secret not in f"{config!r}{keyring_of(config)!r}"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("a:AAAA", "must have 32 bytes"),
        ("a:?", "must be id:base64"),
        ("", "has no key"),
        ([("a b", bytes(32))], "a key's id is"),
        ([("a", bytes(32)), ("a", bytes(32))], "two keys have the id"),
    ],
)
def test_what_is_no_keyring_is_refused_without_showing_it(keys: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        keyring_of(Config("postgresql://", keys=keys))
