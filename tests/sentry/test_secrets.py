"""What reaches Sentry of attempts with hidden or sealed arguments: each event whole, searched for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tasklib
from tasklib import Config, Hidden, Sealed, task
from tasklib.tasks.masking import MASK
from tasklib.testing import drain
from tests.sentry.test_sentry import Start, start  # noqa: F401  # a fixture

sentry_sdk = pytest.importorskip("sentry_sdk", reason="is in the extra `sentry`, which `make test` installs")

SECRET = "DE02-sealedmark-0042"


def fail(iban: str) -> None:
    half = iban[:13]
    sentry_sdk.add_breadcrumb(message=f"paying {iban}", data={"iban": [iban]})
    sentry_sdk.set_tag("account", iban)
    with sentry_sdk.start_span(op="http", name=f"GET /{iban}"):
        pass
    sentry_sdk.capture_message(f"odd account {iban}")
    raise ValueError(f"no account {half} of {iban}")


@pytest.mark.parametrize("kind", ["hidden", "fields", "sealed"])
async def test_no_event_shows_what_a_task_hides_or_seals(config: Config, start: Start, kind: str) -> None:  # noqa: F811
    kept = start()
    config = config.with_changes(keys=(("a", bytes(32)),), max_retries=0)
    tasklib.init(config)
    if kind == "hidden":

        @task(name="sentry.pay")
        async def pay(iban: Hidden[str]) -> None:
            fail(iban)

    elif kind == "fields":

        @task(name="sentry.pay")
        def pay(iban: Sealed[str]) -> None:
            fail(iban)

    else:

        @task(name="sentry.pay", sealed=True)
        async def pay(iban: str) -> None:
            fail(iban)

    await pay.submit(SECRET)
    await drain(config, until_done=True)
    [message, error], [ran] = kept.errors, kept.of("transaction")
    assert SECRET not in json.dumps(kept.items)
    assert message["message"] == f"odd account {MASK}"
    # The SDK adds breadcrumbs of its own, such as of programs that were started.
    assert f"paying {MASK}" in [each.get("message") for each in error["breadcrumbs"]["values"]]
    assert [span["description"] for span in ran["spans"]] == [f"GET /{MASK}"]
    [value] = [each["value"] for each in error["exception"]["values"]]
    frames: list[dict[str, Any]] = error["exception"]["values"][0]["stacktrace"]["frames"]
    if kind == "hidden":
        assert value == f"no account {SECRET[:13]} of {MASK}"
        assert frames[-1]["vars"]["iban"] == f"'{MASK}'"
    else:  # half of it is no less secret
        assert SECRET[:13] not in json.dumps(kept.items)
        assert value == MASK
        assert not any("vars" in frame for frame in frames)
