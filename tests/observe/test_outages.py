from __future__ import annotations

from tasklib.observe.outages import Outages


def test_one_outage_is_told_once_whichever_connections_notice() -> None:
    outages = Outages()
    assert outages.begins_with("listen")
    assert not outages.begins_with("claim")
    assert outages.ends_with("claim")
    assert not outages.ends_with("listen")


def test_connection_that_lay_idle_through_the_outage_brings_no_news() -> None:
    outages = Outages()
    outages.begins_with("listen")
    outages.ends_with("listen")
    assert not outages.begins_with("maintenance")
    assert not outages.ends_with("maintenance")


def test_second_outage_is_news_again() -> None:
    outages = Outages()
    outages.begins_with("listen")
    outages.ends_with("listen")
    assert outages.begins_with("listen")
    assert outages.ends_with("claim")
