"""`fn.s(...)`: a task function with some of its arguments, as a part of a flow. Arguments may be nodes of the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic

from typing_extensions import TypeVar

from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.tasks.options import NOTHING_SAID, Options

if TYPE_CHECKING:
    from tasklib.tasks.function import TaskFunction

R_co = TypeVar("R_co", covariant=True, default=Any)
NOTHING_GIVEN: Final[Mapping[str, Any]] = {}
"""No arguments by name. One for all: a group may have a million tasks."""


@dataclass(frozen=True, slots=True)
class Signature(Generic[R_co]):
    """What `fn.s(...)` returns: a part of a chain, a group or a flow."""

    task: TaskFunction[..., R_co, Any, ...]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: NOTHING_GIVEN)
    options: Options = NOTHING_SAID

    def __post_init__(self) -> None:
        if self.options.idempotency_key is not None:
            raise InvalidOption(
                f"{self.task.name}: a task of a flow has no idempotency_key; its id is made with the flow. "
                "Guard the submission of the flow instead, in a transaction of your own."
            )

    def arguments(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._bound(self.args)

    def arguments_after(self, previous: Any) -> dict[str, Any]:
        """The arguments by name, with the result of what ran before in the first place, if that is free."""
        parameters = list(self.task.arguments.parameters)
        free = len(parameters) - len(self.kwargs)
        if not parameters or parameters[0] in self.kwargs or len(self.args) >= free:
            return self._bound(self.args)
        return self._bound((previous, *self.args))

    def _bound(self, args: tuple[Any, ...]) -> dict[str, Any]:
        names = [name for name in self.task.arguments.parameters if name not in self.kwargs]
        if len(args) > len(names):
            raise TaskExecutionError(
                f"{self.task.name} was given {len(args) + len(self.kwargs)} arguments and takes "
                f"{len(self.task.arguments.parameters)}.",
                task=self.task.name,
            )
        return {**dict(zip(names, args, strict=False)), **self.kwargs}
