"""Which shard a submission goes to.

Without a key by chance, by the weights. With a key (what has to be together: an idempotency key, a serial key, a limit)
by rendezvous hashing: each open shard draws a number from the key, weighted, and the highest has it. When a weight
changes, only the keys move that the changed shard wins or loses, and `Shard.past` says where they went before.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Sequence
from datetime import datetime

from tasklib.shards import Shard

SETTLING_SECONDS = 10.0
"""After a change of weights a key that moves waits for so long: programs read the file anew every second, and what they
sent to its former shard before has arrived by then. Clocks may differ by half of it."""


def by_chance(shards: Iterable[Shard], now: datetime) -> Shard | None:
    """One of the open shards, by their weights; None if there is none. One that moves only if all of them do."""
    weights = [(shard, weight_at(shard, now)) for shard in shards]
    open_ = [(shard, weight) for shard, weight in weights if weight > 0]
    open_ = [each for each in open_ if each[0].moving_to is None] or open_
    if not open_:
        return None
    return random.choices([shard for shard, _ in open_], [weight for _, weight in open_])[0]


def owner_of(key: str, shards: Sequence[Shard], now: datetime) -> Shard:
    """The shard that has this key now."""
    return _highest(key, [(shard, weight_at(shard, now)) for shard in shards])


def former_owners(
    key: str, shards: Sequence[Shard], now: datetime, since: datetime | None
) -> list[tuple[Shard, datetime]]:
    """The shards that had this key before, each with the end of its time, the latest first.

    Only those whose time ended after `since`; None: all that are known. The present owner is not among them.
    """
    present = owner_of(key, shards, now)
    ends = {end for shard in shards for end, _ in shard.past if end <= now and (since is None or end > since)}
    found: dict[int, tuple[Shard, datetime]] = {}
    for end in sorted(ends, reverse=True):
        weights = [(shard, _weight_until(shard, end)) for shard in shards]
        if not any(weight for _, weight in weights):
            continue
        former = _highest(key, weights)
        if former is not present:
            found.setdefault(former.number, (former, end))
    return list(found.values())


def settling(ended: datetime, now: datetime) -> float:
    """How many seconds a key waits whose former owner's time ended then."""
    return max(0.0, SETTLING_SECONDS - (now - ended).total_seconds())


def weight_at(shard: Shard, moment: datetime) -> float:
    """The weight of a shard at this moment; one that was written ahead of its time is still to come."""
    return next((weight for until, weight in sorted(shard.past) if until > moment), shard.weight)


def _weight_until(shard: Shard, moment: datetime) -> float:
    """The weight that it had just before."""
    return next((weight for until, weight in sorted(shard.past) if until >= moment), shard.weight)


def _highest(key: str, weights: Iterable[tuple[Shard, float]]) -> Shard:
    return max(((shard, weight) for shard, weight in weights if weight > 0), key=lambda each: _draw(key, *each))[0]


def _draw(key: str, shard: Shard, weight: float) -> tuple[float, int]:
    digest = hashlib.blake2b(f"{shard.number}/{key}".encode(errors="surrogatepass"), digest_size=8).digest()
    chance = (int.from_bytes(digest) + 0.5) / 2.0**64
    return -weight / math.log(chance), shard.number
