"""What submitting returns: a UUID that can ask for its task.

task_id = await add.submit(1, 2)
assert await task_id.result(timeout=10) == 3
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self
from uuid import UUID, SafeUUID

from typing_extensions import TypeVar

from tasklib.errors import TaskNotFound
from tasklib.tasks import default_client
from tasklib.tasks.default_client import Performs
from tasklib.tasks.submitter import Awaited, returns_awaited

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    from tasklib.models import Task
    from tasklib.states import TaskState

R_co = TypeVar("R_co", covariant=True, default=Any)

_set = object.__setattr__  # a UUID refuses to be changed


class KnownId(UUID, Generic[R_co]):
    """What the ids for async and for sync code have in common. Equal to the plain UUID, with the same hash.

    It goes to its task through the client that submitted it, or through the module-level calls.
    """

    __slots__ = ("_client",)
    _client: Performs
    # As a value of the class: setting it on each id would take a third of the time that making one takes.
    is_safe: ClassVar[SafeUUID] = SafeUUID.unknown  # type: ignore[misc]

    def __init__(self, id: UUID | str) -> None:
        _set(self, "int", (id if isinstance(id, UUID) else UUID(id)).int)

    def _by(self, client: Performs) -> Self:
        """The id itself, from now on with this client."""
        _set(self, "_client", client)
        return self

    def __setattr__(self, name: str, value: Any) -> None:  # type: ignore[override]
        if name != "__orig_class__":  # what Python sets for `TaskId[int](...)`, where it can
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the client: another process goes through its own module-level calls.
        return type(self), (str(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As a field, or a task's parameter, of this type: read from what a UUID is read from."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda id_: id_ if isinstance(id_, cls) else cls(id_), handler.generate_schema(UUID)
        )


class TaskId(KnownId[R_co]):
    """The id of a task: a `uuid.UUID` in every respect, with methods that are awaited.

    task_id = await send_email.submit(to="a@example.com")
    await task_id.result(timeout=10)        # what the function returned, in the type it declares
    """

    __slots__ = ()

    @returns_awaited
    def result(self, timeout: float | None = None) -> Coroutine[Any, Any, R_co]:
        """Wait until the task is done and return its result, in the type that the function declares.

        Raises TaskFailed with the remote traceback, TaskCancelled, or WaitTimeout; the task itself is not affected.
        """
        return self._ask("result", "wait_for", timeout)

    @returns_awaited
    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, TaskState]:
        """Wait until the task has ended in whatever way, and return its state. Raises WaitTimeout."""
        return self._ask("wait", "wait_until_done", timeout)

    @returns_awaited
    def get(self) -> Coroutine[Any, Any, Task]:
        """The task's row as it is now. Raises TaskNotFound if it was deleted, or is not committed yet."""
        return Awaited(self._row(), "task_id.get", "task_id.sync.get")

    @returns_awaited
    def progress(self) -> Coroutine[Any, Any, Any]:
        """What the task reported last with `current_task().progress(...)`; None before."""
        return Awaited(self._progress(), "task_id.progress", "task_id.sync.progress")

    @returns_awaited
    def cancel(self) -> Coroutine[Any, Any, TaskState]:
        """Cancel the task and return its state: `running` means that its worker was asked to stop it."""
        return self._ask("cancel", "cancel_task")

    @returns_awaited
    def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> Coroutine[Any, Any, bool]:
        """Send a signal to a durable task; False if it is finished. With a `key` it is sent once."""
        return Awaited(self._signal(name, payload, key), "task_id.signal", "task_id.sync.signal")

    @property
    def sync(self) -> SyncTaskId[R_co]:
        """The same id with methods that block, for synchronous code: `task_id.sync.result(timeout=10)`."""
        if hasattr(self, "_client"):
            raise TypeError(
                "this id came from an AsyncClient, which can't block. Hand it to a Client: client.wait_for(task_id)."
            )
        return SyncTaskId(self)

    def _ask(self, method: str, call: str, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return Awaited(self._perform(call, *arguments), f"task_id.{method}", f"task_id.sync.{method}")

    async def _perform(self, call: str, *arguments: Any) -> Any:
        client = getattr(self, "_client", None) or default_client.async_client()
        return await client.perform(getattr(client.calls, call)(self, *arguments))

    async def _signal(self, name: str, payload: Any, key: str | None) -> bool:
        client = getattr(self, "_client", None) or default_client.async_client()
        sent: bool = await client.perform(client.calls.signal(self, name, payload, key=key))
        return sent

    async def _row(self) -> Task:
        return _found(self, await self._perform("get_task"))

    async def _progress(self) -> Any:
        return (await self._row()).progress


class SyncTaskId(KnownId[R_co]):
    """`TaskId` for synchronous code: the same methods, which block. What `submit_sync` and `tasklib.sync` return.

    task_id = send_email.submit_sync(to="a@example.com")
    task_id.result(timeout=10)
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the task is done and return its result, in the type that the function declares.

        Raises TaskFailed with the remote traceback, TaskCancelled, or WaitTimeout; the task itself is not affected.
        """
        value: R_co = self._perform("wait_for", timeout)
        return value

    def wait(self, timeout: float | None = None) -> TaskState:
        """Wait until the task has ended in whatever way, and return its state. Raises WaitTimeout."""
        state: TaskState = self._perform("wait_until_done", timeout)
        return state

    def get(self) -> Task:
        """The task's row as it is now. Raises TaskNotFound if it was deleted, or is not committed yet."""
        return _found(self, self._perform("get_task"))

    def progress(self) -> Any:
        """What the task reported last with `current_task().progress(...)`; None before."""
        return self.get().progress

    def cancel(self) -> TaskState:
        """Cancel the task and return its state: `running` means that its worker was asked to stop it."""
        state: TaskState = self._perform("cancel_task")
        return state

    def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> bool:
        """Send a signal to a durable task; False if it is finished. With a `key` it is sent once."""
        client = getattr(self, "_client", None) or default_client.sync_client()
        sent: bool = client.perform(client.calls.signal(self, name, payload, key=key))
        return sent

    def _perform(self, call: str, *arguments: Any) -> Any:
        client = getattr(self, "_client", None) or default_client.sync_client()
        return client.perform(getattr(client.calls, call)(self, *arguments))


def _found(task_id: UUID, task: Task | None) -> Task:
    if task is None:
        raise TaskNotFound.with_id(task_id)
    return task


def by_client(client: Any, submitted: Any) -> Any:
    """The ids that a call returned, or the flow, each with the client that it asks about itself."""
    if not isinstance(submitted, list):
        return submitted._by(client)
    for task_id in submitted:
        _set(task_id, "_client", client)
    return submitted
