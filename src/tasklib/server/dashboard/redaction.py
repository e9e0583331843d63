"""What is hidden on a page: values under keys that speak of secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MASK = "••••••"
"""What stands for a hidden value. Sent back in an edited text, it stands for the value it hid."""

_SEPARATORS = re.compile(r"[\W_]+")


class Redaction:
    """Hides what stands under a key in which one of these words occurs, however it is spelled."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(filter(None, map(_plain, words)))

    def hides(self, key: str) -> bool:
        plain = _plain(key)
        return any(word in plain for word in self._words)

    def masked(self, value: Any) -> Any:
        """The value as it may be shown."""
        match value:
            case dict():
                return {k: MASK if self.hides(k) and v not in (None, "") else self.masked(v) for k, v in value.items()}
            case list():
                return [self.masked(item) for item in value]
        return value

    def restored(self, edited: Any, original: Any) -> Any:
        """What was edited while it was hidden, with the values that were."""
        match edited, original:
            case dict(), dict():
                return {
                    k: original[k]
                    if v == MASK and k in original and self.hides(k)
                    else self.restored(v, original.get(k))
                    for k, v in edited.items()
                }
            case list(), list():
                # By place: what was added at the end has nothing behind it.
                pairs = zip(edited, [*original, *[None] * len(edited)], strict=False)
                return [self.restored(item, was) for item, was in pairs]
        return edited


def _plain(key: str) -> str:
    return _SEPARATORS.sub("", key).lower()
