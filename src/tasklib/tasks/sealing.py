"""Sealed payloads: encrypted before they leave the program, and bound to the task and the column they are in.

    version (1 byte) | length of the key's id (1 byte) | the key's id | salt (16) | nonce (12) | ciphertext | tag (16)

AES-256-GCM under a key of its own for each message, derived by HKDF-SHA256 from the ring's key and a random salt. The
associated data are the header, the task's id, its name and the column: a ciphertext that was moved doesn't open. In the
table it is base64 in {"$sealed": "..."}. Version 2 is the same for a text that was compressed before.
"""

from __future__ import annotations

import hmac
import json
import os
import struct
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from tasklib.columns import SEALED_FROM, SEALED_MARK
from tasklib.errors import InvalidTaskFunction, KeyMissing, PayloadDamaged
from tasklib.tasks import compression
from tasklib.tasks.marks import marked_parameters

if TYPE_CHECKING:
    from tasklib.tasks.keyring import Keyring

T = TypeVar("T")
_IN_TEXT = f'"{SEALED_MARK}"'
_ERROR_PREFIX = f"{SEALED_MARK}:"
_PLAIN, _COMPRESSED = 1, 2
SEALED_TEXT = "•••"
"""What stands for the text of a sealed error."""
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 12, 16
_INFO = b"tasklib sealed payload 1\x01"
"""HKDF's info and the number of its only block."""


class _SealedField:
    def __repr__(self) -> str:
        return "Sealed"


_MARK = _SealedField()
Sealed: TypeAlias = Annotated[T, _MARK]
"""An argument that is stored sealed, beside others that are not: `def pay(order: int, iban: Sealed[str])`."""


@dataclass(frozen=True, slots=True)
class Sealing:
    """What a function seals: these arguments (None: all), and everything its tasks result in."""

    fields: frozenset[str] | None
    accepts_clear: bool = False
    """Whether it runs tasks with clear arguments too: those that were submitted before it was sealed."""

    @classmethod
    def of(cls, sealed: object, hints: Mapping[str, Any], name: str) -> Sealing | None:
        """What `@task(sealed=...)` and the type hints say."""
        if sealed not in (True, False, None, "new"):
            raise InvalidTaskFunction(f"{name}: sealed must be True, False or 'new', not {sealed!r}.")
        marked = marked_parameters(hints, _MARK)
        if not sealed and not marked:
            return None
        if sealed is False:
            raise InvalidTaskFunction(f"{name}: sealed=False contradicts Sealed[...] of {min(marked)}.")
        return cls(marked or None, accepts_clear=sealed == "new")

    def is_sealed(self, argument: str) -> bool:
        return self.fields is None or argument in self.fields


@dataclass(frozen=True, slots=True)
class TaskSeal:
    """Seals and opens what one task holds, with one key."""

    ring: Keyring
    key_id: str
    task_id: str
    name: str
    compresses: bool = True

    def seal(self, column: str, text: str) -> str:
        """Text for this column of the task, as base64."""
        data = text.encode()
        smaller = compression.smaller(data) if self.compresses else None
        if smaller is None:
            return self._sealed(column, _header(self.key_id, _PLAIN), data)
        return self._sealed(column, _header(self.key_id, _COMPRESSED), smaller)

    def open(self, column: str, sealed: str) -> str:
        """The text; PayloadDamaged unless it was sealed for this column of this task."""
        head, data = self._opened(column, sealed)
        try:
            return str(compression.whole(data) if head[0] == _COMPRESSED else data, "utf-8")
        except ValueError:
            raise PayloadDamaged(self.name, self.task_id, column) from None

    def moved(self, column: str, sealed: str, to: TaskSeal) -> str:
        """What this seal has sealed, sealed by another one, and compressed as it was."""
        head, data = self._opened(column, sealed)
        return to._sealed(column, _header(to.key_id, head[0]), data)

    def _sealed(self, column: str, head: bytes, data: bytes) -> str:
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        cipher = _aes_gcm()(message_key(self.ring[self.key_id], salt))
        sealed = cipher.encrypt(nonce, data, self._associated(head, column))
        return b64encode(b"".join((head, salt, nonce, sealed))).decode()

    def _opened(self, column: str, sealed: str) -> tuple[bytes, bytes]:
        head, salt, nonce, ciphertext = _parts(sealed)
        if head != _header(self.key_id, head[0]):
            raise PayloadDamaged(self.name, self.task_id, column)
        from cryptography.exceptions import InvalidTag

        try:
            cipher = _aes_gcm()(message_key(self.ring[self.key_id], salt))
            return head, cipher.decrypt(nonce, ciphertext, self._associated(head, column))
        except InvalidTag:
            raise PayloadDamaged(self.name, self.task_id, column) from None

    def _associated(self, head: bytes, column: str) -> bytes:
        parts = (part.encode() for part in (self.task_id, self.name, column))
        return head + b"".join(struct.pack("!I", len(part)) + part for part in parts)

    # ---- the columns ----

    def arguments(self, text: str, sealing: Sealing) -> str:
        """Arguments as JSON text, sealed as the function says."""
        if sealing.fields is None:
            return f'{{{_IN_TEXT}:"{self.seal("kwargs", text)}"}}'
        values = json.loads(text)
        secret = {name: values.pop(name) for name in (*sealing.fields, SEALED_FROM) if name in values}
        inner = self.seal("kwargs", json.dumps(secret, ensure_ascii=False))
        return json.dumps({SEALED_MARK: inner, **values}, ensure_ascii=False)

    def opened_arguments(self, text: str) -> str:
        """Sealed arguments as clear JSON text."""
        values = json.loads(text)
        opened = self.open("kwargs", values.pop(SEALED_MARK))
        return json.dumps({**values, **json.loads(opened)}, ensure_ascii=False) if values else opened

    def result(self, text: str) -> str:
        """A result, {"value": ...}, sealed."""
        return f'{{"value":{self.json("result", text)}}}'

    def opened_result(self, value: Any) -> Any:
        """The value of a result that was read; one that is not sealed as it is."""
        return json.loads(self.open("result", value[SEALED_MARK]))["value"] if is_sealed(value) else value

    def json(self, column: str, text: str) -> str:
        return f'{{{_IN_TEXT}:"{self.seal(column, text)}"}}'

    def opened_json(self, column: str, value: Any) -> Any:
        return json.loads(self.open(column, value[SEALED_MARK])) if is_sealed(value) else value

    def error(self, text: str, raised: str | None = None) -> str:
        """An error text, sealed. The type of the exception stays clear, in the last line: groups of errors need it."""
        kind = raised or error_type(text)
        return f"{_ERROR_PREFIX}{self.seal('error', text)}\n{kind}"

    def opened_error(self, text: str | None) -> str | None:
        if text is None or not text.startswith(_ERROR_PREFIX):
            return text
        return self.open("error", text.removeprefix(_ERROR_PREFIX).partition("\n")[0])


def seal_of(ring: Keyring | None, task_id: object, name: str, sealed: str, *, compresses: bool = True) -> TaskSeal:
    """For a task with this ciphertext; KeyMissing if its key is not here."""
    key_id = key_id_of(sealed)
    if ring is None or key_id not in ring:
        raise KeyMissing(key_id)
    return TaskSeal(ring, key_id, str(task_id), name, compresses)


def key_id_of(sealed: str) -> str:
    """The id of the key that this was sealed with; PayloadDamaged if it has no such form."""
    return str(_parts(sealed)[0][2:], "ascii")


def sealed_arguments(text: str) -> str | None:
    """The ciphertext among stored arguments; None if they are clear."""
    if _IN_TEXT not in text:
        return None
    found = json.loads(text).get(SEALED_MARK)
    return found if isinstance(found, str) else None


def error_type(text: str) -> str:
    """The class of the exception, by the last line of its traceback."""
    return text.rstrip().rpartition("\n")[2].partition(":")[0]


def sealed_error(text: str | None) -> str | None:
    """The ciphertext in an error; None if it is clear."""
    if text is None or not text.startswith(_ERROR_PREFIX):
        return None
    return text.removeprefix(_ERROR_PREFIX).partition("\n")[0]


def shown_error(text: str | None, mask: str = SEALED_TEXT) -> str | None:
    """An error as everything shows it that doesn't open it: the type, and a mask for the rest."""
    if sealed_error(text) is None or text is None:
        return text
    return f"{text.rpartition(chr(10))[2]}: {mask}"


def is_sealed(value: Any) -> bool:
    """True for a stored value that is ciphertext."""
    return isinstance(value, dict) and value.keys() == {SEALED_MARK} and isinstance(value[SEALED_MARK], str)


def key_capability(key_id: str) -> str:
    """What a task sealed with this key requires of a worker."""
    return f"key:{key_id}"


def required_by(sealed: str) -> list[str]:
    """What these sealed arguments require of a worker: the key, and if they are compressed, the library for that."""
    head = _parts(sealed)[0]
    key = key_capability(str(head[2:], "ascii"))
    return [key, compression.CAPABILITY] if head[0] == _COMPRESSED else [key]


def message_key(key: bytes, salt: bytes) -> bytes:
    """HKDF-SHA256 with one block of output."""
    return hmac.digest(hmac.digest(salt, key, "sha256"), _INFO, "sha256")


def hashed_key(ring: Keyring, key_id: str, name: str, text: str) -> str:
    """What stands for an idempotency or merge key of a sealed task: equal keys give equal hashes, and no more."""
    key = hmac.digest(ring[key_id], b"tasklib idempotency key", "sha256")
    return "sealed:" + hmac.digest(key, f"{name}\0{text}".encode(), "sha256").hex()


def refuse_with_sealing(function: Any, by_argument: Iterable[tuple[str, str | None]]) -> None:
    """What a sealed function can't be combined with, because it would show sealed values or can't seal them."""
    name, sealing = function.name, function.sealing
    if function.schedules:
        raise InvalidTaskFunction(
            f"{name}: a sealed function can't have a schedule: arguments are sealed for one task. Let a scheduled "
            "function submit it."
        )
    for option, argument in by_argument:
        if argument is not None and sealing.is_sealed(argument):
            raise InvalidTaskFunction(f"{name}: {option} names {argument}, which is sealed, and would store it clear.")


def _parts(sealed: str) -> tuple[bytes, bytes, bytes, bytes]:
    try:
        raw = b64decode(sealed, validate=True)
    except (NotBase64, ValueError):
        raise PayloadDamaged.unreadable() from None
    end = 2 + raw[1] if len(raw) > 2 else 0
    if (
        not end
        or raw[0] not in (_PLAIN, _COMPRESSED)
        or len(raw) < end + _SALT_BYTES + _NONCE_BYTES + _TAG_BYTES
        or not raw[2:end].isascii()
    ):
        raise PayloadDamaged.unreadable()
    salt_end = end + _SALT_BYTES
    return raw[:end], raw[end:salt_end], raw[salt_end : salt_end + _NONCE_BYTES], raw[salt_end + _NONCE_BYTES :]


def _header(key_id: str, version: int) -> bytes:
    return bytes((version, len(key_id))) + key_id.encode("ascii")


def _aes_gcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise KeyMissing.no_library() from None
    return AESGCM
