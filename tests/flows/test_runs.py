"""What the submission of a flow returns: its results, its state, cancel and replay, with and without a client."""

from __future__ import annotations

import pytest

import tasklib
from tasklib import AsyncClient, Client, Config, Flow, InvalidOption, WaitTimeout, chain, group, task
from tasklib.testing import drain


@task
async def double(x: int) -> int:
    return 2 * x


@task(max_retries=0)
async def picky(x: int) -> int:
    if x > 1 and not LENIENT:
        raise ValueError("too many")
    return x


LENIENT: list[bool] = []


@pytest.fixture(autouse=True)
def registered(config: Config) -> None:
    from tasklib.tasks import registry

    registry.register(double)
    registry.register(picky)
    LENIENT.clear()
    tasklib.init(config)


async def test_a_run_has_the_results_of_its_ends_and_of_each_node() -> None:
    run = await chain(double.s(1), group(double.s(), picky.s(1))).submit()
    with pytest.raises(TimeoutError):
        await run.results(timeout=0.01)
    await drain()
    assert await run.results(timeout=120) == [4, 1]
    assert await run.results("double", timeout=120) == [2]
    with pytest.raises(InvalidOption, match="no node 'other'; it has double, double-2"):
        await run.results("other")
    with pytest.raises(InvalidOption, match=r"run\.results\(\)"):
        await run.result()


async def test_a_run_shows_cancels_and_replays_its_flow() -> None:
    run = await group(picky.s(1), picky.s(2)).then(double.s(7)).submit()
    await drain()
    info = (await run.get()).info
    assert (info.total, info.completed, info.failed) == (3, 1, 2)
    LENIENT.append(True)
    assert await run.replay() == 1
    await drain()
    assert await run.result(timeout=120) == 14
    other = await chain(double.s(1), double.s()).submit()
    assert (await other.cancel()).cancelled == 2
    assert (await other.get()).info.finished_at is not None


async def test_a_run_asks_the_client_that_submitted_it(config: Config) -> None:
    tasklib.close()  # there is no other client to ask
    async with AsyncClient(config) as client:
        run = await client.submit_flow(chain(double.s(1), double.s()))
        assert (await run.get()).info.total == 2
        assert (await run.cancel()).cancelled == 2
        assert await run.tasks["double"][0].wait(timeout=120) == "cancelled"


def test_a_run_blocks_in_synchronous_code(config: Config) -> None:
    tasklib.close()
    flow: Flow[int] = Flow("one")
    flow.add(double.s(1), name="a")
    with Client(config) as client:
        run = client.submit_flow(flow)
        with pytest.raises(WaitTimeout):
            run.results(timeout=0.01)
        assert run.get().info.total == 1
        assert run.cancel().cancelled == 1
        assert run.replay() == 1
