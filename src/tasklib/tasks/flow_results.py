"""What a join gets: `SettledTask` values for results and errors, and `Results` for more results than fit a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, get_args, get_origin
from uuid import UUID

from typing_extensions import TypeVar

from tasklib.tasks import default_client
from tasklib.tasks.context import worker_calls

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

T = TypeVar("T", default=Any)

PAGE = 1000


@dataclass(frozen=True)
class SettledTask(Generic[T]):
    """How a task ended, for a join that waits with `when="settled"`."""

    id: UUID
    state: str
    """`completed`, `cancelled` or `dead_letter`."""
    result: T | None = None
    error: str | None = None


class Results(Generic[T]):
    """The results of a group in the order of submission, read page by page: never all in memory.

    @task
    async def total(numbers: Results[int]) -> int:
        return sum([n async for n in numbers])

    They are read over the connection of the worker. In a child process, and outside of tasks, that of `tasklib.init`
    is used.
    """

    def __init__(self, _source: Mapping[str, Any], _item: TypeAdapter[Any] | None = None) -> None:
        self._source = dict(_source)
        self._item = _item

    def __iter__(self) -> Iterator[T]:
        after: str | None = None
        while True:
            page = self._page(after)
            for _, value in page:
                yield self._typed(value)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    async def __aiter__(self) -> AsyncIterator[T]:
        after: str | None = None
        while True:
            page = await self._page_async(after)
            for _, value in page:
                yield self._typed(value)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def _page(self, after: str | None) -> list[tuple[str, Any]]:
        if (calls := worker_calls()) is not None:
            return calls.wait(calls.node_results(self._source, after, PAGE))
        client = default_client.sync_client()
        page: list[tuple[str, Any]] = client.perform(client.calls.node_results(**self._source, after=after, limit=PAGE))
        return page

    async def _page_async(self, after: str | None) -> list[tuple[str, Any]]:
        if (calls := worker_calls()) is not None:
            return await calls.node_results(self._source, after, PAGE)
        client = default_client.async_client()
        page: list[tuple[str, Any]] = await client.perform(
            client.calls.node_results(**self._source, after=after, limit=PAGE)
        )
        return page

    def _typed(self, value: Any) -> T:
        typed: T = value if self._item is None else self._item.validate_python(value)
        return typed

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As a task's parameter: made from what the flow says of its source."""
        from pydantic import TypeAdapter
        from pydantic_core import core_schema

        (item,) = get_args(source) or (None,)
        adapter: TypeAdapter[Any] | None = None if item is None else TypeAdapter(item)
        return core_schema.no_info_after_validator_function(
            lambda found: cls(found, adapter),
            core_schema.dict_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda results: results._source),
        )


def is_pages(hint: Any) -> bool:
    """Whether a parameter is declared as `Results`."""
    return (get_origin(hint) or hint) is Results
