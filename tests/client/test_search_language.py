"""The language of searches: what each term means, and what is said about one that means nothing."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tasklib import Config
from tasklib.client.search_language import parse
from tasklib.client.search_terms import MAX_LENGTH, SearchError, quoted, terms, with_term
from tasklib.store.search import Search, Tag

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
CONFIG = Config("postgresql://")
AN_ID = UUID("019345ab-1234-7abc-8def-0123456789ab")


def sought(text: str) -> Search:
    return parse(text, CONFIG, NOW)


def day(number: int) -> datetime:
    return datetime(2026, 5, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("   ", {}),
        ("state:failed", {"states": ("failed",)}),
        ("state:failed,pending", {"states": ("pending", "failed")}),
        ("state:failed state:pending", {"states": ("pending", "failed")}),
        ("STATE:Dead-Letter", {"states": ("dead_letter",)}),
        ("-state:completed", {"states": ("pending", "running", "failed", "cancelled", "dead_letter")}),
        ("-state:completed state:failed", {"states": ("failed",)}),
        ("state:failed -state:failed", {"states": ()}),
        ("name:send_email", {"names": (r"send\_email",)}),
        ("name:mail.*", {"names": ("mail.%",)}),
        ('name:"mail.*"', {"names": ("mail.*",)}),
        ("-name:a,b", {"not_names": ("a", "b")}),
        ("queue:mail queue:sms", {"queues": ("mail", "sms")}),
        ('queue:"two words"', {"queues": ("two words",)}),
        ("worker:web1", {"workers": ("web1%",)}),
        ("cause:1f3a9c02", {"causes": ("1f3a9c02%",)}),
        ("tag.customer:42,43", {"tags": (Tag("customer", ("42", "43")),)}),
        ("args.Order.id:7 args.to:*", {"arguments": (Tag("Order.id", ("7",)), Tag("to"))}),
        ("-args.order:7", {"not_arguments": (Tag("order", ("7",)),)}),
        ("failed:<10m", {"failed_from": NOW - timedelta(minutes=10), "states": ("failed", "dead_letter")}),
        ("failed:>1d state:failed", {"failed_to": NOW - timedelta(days=1), "states": ("failed",)}),
        ("due:<1h", {"due_to": NOW + timedelta(hours=1), "states": ("pending", "failed")}),
        ("due:>1h state:pending", {"due_from": NOW + timedelta(hours=1), "states": ("pending",)}),
        ("duration:>10s duration:<1m", {"duration_from": 10.0, "duration_to": 60.0}),
        ("duration:<500ms", {"duration_to": 0.5}),
        ('error:"connection refused"', {"errors": ("%connection refused%",)}),
        ("-error:100%", {"not_errors": (r"%100\%%",)}),
        ("tag:customer=42", {"tags": (Tag("customer", ("42",)),)}),
        ("tag:customer=42,43", {"tags": (Tag("customer", ("42", "43")),)}),
        ("tag:customer=42 tag:eu", {"tags": (Tag("customer", ("42",)), Tag("eu"))}),
        ('-tag:"full name"="a b"', {"not_tags": (Tag("full name", ("a b",)),)}),
        (f"id:{AN_ID}", {"exact": (AN_ID,)}),
        (str(AN_ID).upper(), {"exact": (AN_ID,)}),
        (f"-id:{AN_ID}", {"not_ids": (str(AN_ID),)}),
        ("id:456789AB", {"ids": ("%456789ab",)}),
        ("priority:high", {"priorities": ((100, 100),)}),
        ("priority:>0", {"priorities": ((1, 100),)}),
        ("priority:<=medium -priority:-10", {"priorities": ((-10, 0),), "not_priorities": ((-10, -10),)}),
        ("created:<2h", {"created_from": NOW - timedelta(hours=2)}),
        ("created:2h", {"created_from": NOW - timedelta(hours=2)}),
        ("created:>2h", {"created_to": NOW - timedelta(hours=2)}),
        ("-created:>2h", {"created_from": NOW - timedelta(hours=2)}),
        ("created:2026-05-01", {"created_from": day(1), "created_to": day(2)}),
        ("created:>2026-05-01", {"created_from": day(2)}),
        ("created:<2026-05-01", {"created_to": day(1)}),
        ("created:2026-05-01..2026-05-03", {"created_from": day(1), "created_to": day(4)}),
        ("created:>2026-05-01T02:00+02:00", {"created_from": day(1)}),
        (
            "created:<7d created:>1d",
            {"created_from": NOW - timedelta(days=7), "created_to": NOW - timedelta(days=1)},
        ),
        ("welcome mail", {"words": ("%welcome%", "%mail%")}),
        ('"a:b, c"', {"words": ("%a:b, c%",)}),
        ("-test", {"not_words": ("%test%",)}),
        (r'"say \"hi\""', {"words": ('%say "hi"%',)}),
    ],
)
def test_what_a_search_means(text: str, expected: dict[str, Any]) -> None:
    assert sought(text) == Search(**expected)


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("state:fialed", 6, "Did you mean failed"),
        ("state:nonsense", 6, "States are pending"),
        ("a stat:failed", 2, "Did you mean state:"),
        ("http://x", 0, "in quotes"),
        ("state:", 0, "state:failed"),
        ("state:failed name:", 13, "name:send_email"),
        ("-", 0, "no term after this"),
        ('error:"open', 6, "not closed"),
        ("tag:=1", 4, "tag:key=value"),
        ("id:xyz", 3, "not a task's id"),
        ("priority:urgent", 9, "high"),
        ("created:yesterday", 8, "created:<2h"),
        ("created:9999999999w", 8, "is out of range"),
        ("created:1h,2h", 0, "one time"),
        ("-created:2026-05-01", 0, "middle"),
        ("x" * (MAX_LENGTH + 1), MAX_LENGTH, "characters"),
        ("\x00", 0, "NUL"),
        ("\ud800", 0, "text"),
    ],
)
def test_what_is_said_about_a_search_that_means_nothing(text: str, at: int, said: str) -> None:
    with pytest.raises(SearchError, match=said) as raised:
        sought(text)
    assert raised.value.at == at


@pytest.mark.parametrize("value", ["plain", "two words", 'a "quote"', "back\\slash", "-x", "a,b", "*", "<script>", "ü"])
def test_a_value_in_quotes_is_that_value(value: str) -> None:
    (term,) = terms(f"name:{quoted(value)}")
    assert [v.text for v in term.values] == [value]


@pytest.mark.parametrize("text", ['"', '""', "::", "a:b:c", ",", "-,", '\\"', "=", "…", "'", "%_\\", "🦄:x", "-" * 50])
def test_no_text_is_too_odd_to_be_understood_or_refused(text: str) -> None:
    with suppress(SearchError):
        assert isinstance(sought(text), Search)


def test_a_term_takes_the_place_of_those_with_the_same_qualifier() -> None:
    text = 'welcome state:failed  name:"a b" -state:running'
    assert with_term(text, "state", "pending") == 'welcome name:"a b" state:pending'
    assert with_term(text, "state", None) == 'welcome name:"a b"'
    assert with_term("", "queue", "two words") == 'queue:"two words"'
    assert with_term('error:"not closed', "queue", "mail") == "queue:mail"
