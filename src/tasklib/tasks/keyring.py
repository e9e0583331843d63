"""The keys of sealed tasks, by their ids: the first one writes, all of them read."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasklib.config import Config
from tasklib.errors import ConfigError, KeyMissing

KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Keyring(Mapping[str, bytes]):
    """Keys by id, in the order in which they were given."""

    def __init__(self, keys: Iterable[tuple[str, bytes]]) -> None:
        self._keys: dict[str, bytes] = {}
        for id_, key in keys:
            if not isinstance(id_, str) or not _ID.fullmatch(id_):
                raise ConfigError(f"a key's id is 1 to 64 letters, digits or any of _ . -, not {id_!r}.")
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise ConfigError(f"key {id_!r} must have {KEY_BYTES} bytes. Make one: tasklib keys new {id_}")
            if id_ in self._keys:
                raise ConfigError(f"two keys have the id {id_!r}.")
            self._keys[id_] = key
        if not self._keys:
            raise ConfigError("the keyring has no key. Make one: tasklib keys new")

    def __getitem__(self, id_: str) -> bytes:
        try:
            return self._keys[id_]
        except KeyError:
            raise KeyMissing(id_) from None

    def __contains__(self, id_: object) -> bool:
        return id_ in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<keyring {', '.join(self._keys)}>"

    @property
    def first(self) -> str:
        """The id of the key that new tasks are sealed with."""
        return next(iter(self._keys))


_read: dict[Any, Keyring] = {}


def keyring_of(config: Config) -> Keyring | None:
    """The keys of this configuration; None without any. They are read once."""
    if config.keys is None and config.keys_file is None:
        return None
    if config.keys is not None and config.keys_file is not None:
        raise ConfigError("keys and keys_file are both set. Choose one.")
    source = config.keys if config.keys is not None else Path(config.keys_file or "")
    known = source if isinstance(source, str | Path) or callable(source) else tuple(source)
    if known not in _read:
        _read[known] = Keyring(_pairs(known))
    return _read[known]


def parsed(text: str) -> list[tuple[str, bytes]]:
    """Keys as `id:base64`, separated by commas or line breaks; what follows # is a comment."""
    entries = [e.strip() for line in text.splitlines() for e in line.partition("#")[0].split(",")]
    pairs = []
    for entry in filter(None, entries):
        id_, _, encoded = entry.partition(":")
        try:
            pairs.append((id_.strip(), b64decode(encoded.strip(), validate=True)))
        except (NotBase64, ValueError):  # without the entry: it may be a key
            raise ConfigError(f"key {id_[:64]!r} must be id:base64, with {KEY_BYTES} bytes in base64.") from None
    return pairs


def _pairs(source: Any) -> Iterable[tuple[str, bytes]]:
    if isinstance(source, str):
        return parsed(source)
    if isinstance(source, Path):
        try:
            return parsed(source.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"the keys can't be read from {source}: {type(e).__name__}.") from None
    found: Any = source() if callable(source) else source
    return parsed(found) if isinstance(found, str) else [(id_, key) for id_, key in found]
