"""Does this machine's clock agree with the database's?"""

from __future__ import annotations

import time

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, ok, warning
from tasklib.formatting import duration
from tasklib.store import doctor

MOST_SECONDS = 2.0
_LOOKS = 3


def look(config: Config) -> Call[list[Finding]]:
    best: tuple[float, float] | None = None
    for _ in range(_LOOKS):
        before = time.time()
        there: float = yield doctor.clock()
        after = time.time()
        # The answer was given somewhere in between; the quickest look is the surest.
        look_ = ((after - before) / 2, (before + after) / 2 - there)
        best = min(best, look_) if best else look_
    assert best is not None
    doubt, ahead = best
    if abs(ahead) - doubt <= MOST_SECONDS:
        return [ok("clock_skew", f"The clocks agree within {duration(abs(ahead) + doubt)}.", seconds=ahead)]
    return [
        warning(
            "clock_skew",
            f"This machine's clock is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the database's.",
            "TaskLib itself uses only the database's clock. But times given by your programs (scheduled_at) and times "
            "in logs are off by as much.",
            "Let both machines follow a time server: timedatectl set-ntp true",
            seconds=ahead,
        )
    ]
