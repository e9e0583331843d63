"""The depth of JSON, found by counting brackets: deep nesting can't overwhelm this as it would a parser."""

from __future__ import annotations

import re
from itertools import accumulate

# Possessive, and to the end if a string has none: whatever it is given, it never looks back.
STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
"""What each byte outside of strings adds to the depth."""


def is_deeper(text: bytes, most: int) -> bool:
    """True if JSON is nested deeper than this. Only brackets outside of strings count."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = STRINGS.sub(b"", text).translate(None, _NOT_BRACKETS)
    return any(map(most.__lt__, accumulate(map(STEPS.__getitem__, brackets))))
