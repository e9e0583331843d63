"""Lists, searches, counts and groups over shards: as if the tasks were in one table."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Worker, task
from tasklib.errors import DatabaseUnavailable, InvalidOption, TaskCancelled, TaskNotFound
from tasklib.sharding.missing import MissingShardsWarning, PerShardWarning, missing_shards
from tasklib.states import TaskState
from tasklib.store import levels
from tests.shards.conftest import without


def fill(client: Client, count: int, name: str = "work") -> list[UUID]:
    """Submit so many; their ids, the newest first."""
    return [client.submit_task(name, n=n, registered_elsewhere=True) for n in range(count)][::-1]


def give_up(config: Config, ids: list[UUID], error: str = "ValueError: no card") -> None:
    """Let them be dead letters, one second after the other."""
    first = datetime.now(UTC) - timedelta(hours=1)
    for shard in config.shards:
        with psycopg.connect(shard.database_url, autocommit=True) as connection:
            for place, id_ in enumerate(reversed(ids)):
                connection.execute(
                    f"UPDATE {shard.schema}.tasks SET state = 'dead_letter', error = %s, started_at = created_at, "
                    "completed_at = %s WHERE id = %s",
                    [error, first + timedelta(seconds=place), id_],
                )


def pages(client: Client, limit: int) -> list[UUID]:
    found: list[UUID] = []
    after = None
    while page := client.list_tasks(after=after, limit=limit):
        found += [t.id for t in page]
        after = page[-1]
    return found


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_of_a_list_have_every_task_once_and_in_order(client: Client, limit: int) -> None:
    ids = fill(client, 30)
    assert pages(client, limit) == ids


def test_pages_of_a_search_go_forth_and_back(client: Client) -> None:
    ids = fill(client, 25)
    fill(client, 10, "other")
    found: list[UUID] = []
    older = None
    while True:
        page = client.search_tasks("name:work", limit=4, older_than=older)
        found += [t.id for t in page.tasks]
        if page.older is None:
            break
        older = page.older
    assert found == ids
    back = client.search_tasks("name:work", limit=4, newer_than=ids[12])
    assert [t.id for t in back.tasks] == ids[8:12]
    newest = client.search_tasks("name:work", limit=4, newer_than=ids[2])
    assert [t.id for t in newest.tasks] == ids[:4]


def test_a_search_that_reads_a_part_ends_where_the_first_shard_stopped_and_goes_on_from_there(client: Client) -> None:
    wanted = fill(client, 5, "seldom")
    for _ in range(8):
        fill(client, 10, "often")
    wanted = [*fill(client, 2, "seldom"), *wanted]
    found: list[UUID] = []
    older = None
    looked = 0
    for _ in range(200):
        page = client.search_tasks("name:seldom", limit=3, look=4, older_than=older)
        found += [t.id for t in page.tasks]
        looked += page.looked_at is not None
        if page.older is None:
            break
        assert older is None or page.older < older
        older = page.older
    assert found == wanted
    assert looked > 0


def test_counts_are_sums(client: Client, config: Config) -> None:
    ids = fill(client, 20)
    give_up(config, ids[:8])
    assert client.cancel_tasks(ids=ids[8:11]).cancelled == 3
    counts = client.count_states()
    assert {state: (c.count, c.is_capped) for state, c in counts.items() if c.count} == {
        "pending": (9, False),
        "dead_letter": (8, False),
        "cancelled": (3, False),
    }
    assert client.cancel_tasks(everything=True, dry_run=True).cancelled == 9
    assert client.cancel_found("state:pending").count == 9
    assert client.replay_chosen(ids[8:]).count == 12


def test_dead_letters_are_listed_by_time_and_grouped_by_cause(client: Client, config: Config) -> None:
    ids = fill(client, 24)
    give_up(config, ids[:16])
    give_up(config, ids[16:], "KeyError: 'cents'")
    groups = client.dead_letter_groups()
    assert [(g.count, g.error) for g in groups] == [(16, "ValueError: no card"), (8, "KeyError: 'cents'")]
    latest = client.latest_dead_letter_groups()
    assert ([g.count for g in latest.groups], latest.looked_at) == ([16, 8], None)
    assert client.latest_dead_letter_groups(look=3).looked_at is not None
    found: list[UUID] = []
    after = None
    while page := client.dead_letters(name="work", error="no card", after=after, limit=5):
        found += [t.id for t in page]
        after = page[-1]
    assert found == ids[:16]
    report = client.failures(since=timedelta(days=1))
    assert sorted(cause.attempts for cause in report.causes) == [8, 16]
    assert report.fields[report.causes[0].fingerprint][0].tasks == report.causes[0].tasks
    alike: list[UUID] = []
    place = None
    while True:
        one = client.dead_letters_alike(groups[0].fingerprint, after=place, limit=5, look=3)
        alike += [t.id for t in one.tasks]
        place = one.after
        if place is None:
            break
    assert alike == ids[:16]


def test_a_limit_of_a_mass_change_counts_over_all_shards(client: Client, config: Config) -> None:
    ids = fill(client, 20)
    give_up(config, ids)
    assert len(client.replay_dead_letters(everything=True, limit=7)) == 7
    assert len(client.purge_dead_letters(everything=True, limit=5)) == 5
    assert len(client.replay_dead_letters(everything=True)) == 8
    assert client.count_states()["pending"].count == 15


def test_answers_are_without_a_shard_that_is_gone_and_name_it(client: Client, config: Config) -> None:
    ids = fill(client, 20)
    there = [id_ for id_ in ids if ((t := client.get_task(id_)) is not None and id_ is t.id) or True]
    assert there == ids
    with Client(without(config, 2)) as cut_off:
        with missing_shards() as missing:
            found = [t.id for t in cut_off.list_tasks()]
        assert list(missing) == [2]
        assert "can't connect" in missing[2]
        assert set(found) < set(ids)
        with pytest.warns(MissingShardsWarning, match="shard 2 could not be reached") as warned:
            assert cut_off.count_states()["pending"].count == len(found)
        assert list(warned[0].message.shards) == [2]  # type: ignore[union-attr]
        lost = next(id_ for id_ in ids if id_ not in found)
        with pytest.raises(DatabaseUnavailable, match=r"^shard 2: can't connect"):
            cut_off.get_task(lost)
        assert cut_off.get_task(found[0]) is not None
        with missing_shards() as missing:
            assert cut_off.cancel_tasks(everything=True).cancelled == len(found)
        assert list(missing) == [2]


async def test_the_asynchronous_client_names_missing_shards_alike(config: Config) -> None:
    async with AsyncClient(without(config, 1, 3)) as client:
        with missing_shards() as missing:
            assert await client.list_tasks() == []
        assert sorted(missing) == [1, 3]
    async with AsyncClient(without(config, 0, 1, 2, 3)) as client:
        with pytest.raises(DatabaseUnavailable, match="shards 0, 1, 2, 3"):
            await client.list_tasks()


def test_a_task_that_no_shard_has_is_unknown(client: Client) -> None:
    from tasklib.tasks.ids import new_id

    with pytest.raises(TaskNotFound):
        client.cancel_task(new_id(3))
    with pytest.raises(TaskNotFound):
        client.wait_for(new_id(900), timeout=0)


def test_a_task_is_waited_for_edited_and_explained_where_it_is(client: Client) -> None:
    for id_ in fill(client, 8):
        assert client.edit_task(id_, priority=7) == TaskState.PENDING
        assert client.explain_task(id_).reasons
        task = client.get_task(id_)
        assert task is not None
        assert task.priority == 7
        client.cancel_task(id_)
        with pytest.raises(TaskCancelled):
            client.wait_for(id_)
        client.replay_task(id_)


def test_the_audit_is_read_by_time_over_all_shards(client: Client) -> None:
    ids = fill(client, 12)
    random.Random(7).shuffle(ids)
    for id_ in ids:
        client.cancel_task(id_)
    found: list[str] = []
    before = None
    while page := client.audit(action="task.cancel", before=before, limit=5):
        found += [record.target or "" for record in page]
        before = page[-1]
    assert found == [str(id_) for id_ in reversed(ids)]
    assert [r.target for r in client.audit(before=client.audit(limit=3)[-1].id, limit=1)] == [str(ids[-4])]


def test_what_operators_set_holds_on_every_shard_and_needs_all_of_them(client: Client, config: Config) -> None:
    assert client.pause(queue="mail")
    assert not client.pause(queue="mail")
    assert [p.value for p in client.pauses()] == ["mail"]
    with pytest.warns(PerShardWarning, match="'queue:mail' counts within each of 4 shards"):
        assert client.set_limit("queue:mail", max_running=3)
    assert client.change_settings(promote_to_high_after_seconds=60).promote_to_high_after_seconds == 60
    for shard in config.shards:
        with Client(config.for_shard(shard.number)) as one:
            assert [p.value for p in one.pauses()] == ["mail"]
            assert [w.max_running for w in one.limits()] == [3]
            assert one.settings().promote_to_high_after_seconds == 60
    with (
        Client(without(config, 1)) as cut_off,
        pytest.raises(DatabaseUnavailable, match=r"shard 1 \(changed on 0, 2, 3\. Repeat it"),
    ):
        cut_off.resume(queue="mail")
    assert client.resume(queue="mail")


def test_schedules_tokens_and_saved_searches_are_on_the_home_shard(client: Client, config: Config) -> None:
    client.create_schedule("report", "0 7 * * *", registered_elsewhere=True)
    run = client.run_schedule("report")
    client.create_token("ci", roles="viewer")
    client.save_search("mine", "name:work")
    with Client(config.for_shard(0)) as home:
        assert [s.name for s in home.schedules()] == ["report"]
        assert [t.name for t in home.tokens()] == ["ci"]
        assert [s.name for s in home.saved_searches()] == ["mine"]
        assert home.get_task(run) is not None
    assert [s.name for s in client.schedules()] == ["report"]


def test_a_worker_over_all_shards_runs_what_was_submitted_and_its_results_are_waited_for(
    client: Client, config: Config
) -> None:
    @task
    def double(n: int) -> int:
        return 2 * n

    ids = [client.submit(double.bind(n)) for n in range(20)]
    Worker(config, burst=True).run_sync()
    assert [client.wait_for(id_) for id_ in ids] == [2 * n for n in range(20)]


def test_a_worker_of_several_shards_counts_once_among_those_of_others(client: Client) -> None:
    for number, workers in {0: ["a", "b"], 1: ["a"], 2: ["c"]}.items():
        schema = client.config.shards[number].schema
        with client.database.of(number).connection() as connection:
            for id_ in workers:
                table = f"{schema}.worker_registrations"
                connection.execute(f"INSERT INTO {table} (id, capacity, current_load) VALUES (%s, 10, 2)", [id_])
    figures = client.database.run(levels.fleet_figures())
    assert figures.workers == {"active": (3, 30, 8)}


def test_a_limit_of_none_at_all_is_refused_as_with_one_database(client: Client) -> None:
    with pytest.raises(InvalidOption):
        client.replay_dead_letters(name="work", limit=0)
