"""Dependencies of task functions: parameters that the worker provides for each attempt, and that no row holds.

def get_session() -> Iterator[Session]:
    with Session(engine) as session:
        yield session

@task
def bill(order: int, session: Annotated[Session, Depends(get_session)]) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

from tasklib.errors import InvalidTaskFunction
from tasklib.tasks.context import TaskContext, current_task

T = TypeVar("T")


@dataclass(frozen=True)
class Dependency:
    """What `Depends(...)` returns."""

    provider: Callable[..., Any]
    use_cache: bool = True


def Depends(provider: Callable[..., Any], *, use_cache: bool = True) -> Any:  # the name that FastAPI's users know
    """Have a parameter of a task function provided for each attempt, by a function, async or not, or a generator.

    As `Annotated[Session, Depends(get_session)]`, or as the default value, which lets type checkers know that callers
    leave it out. What a generator has after its `yield` runs when the attempt has ended; it sees what the task raised.
    A provider may have dependencies itself, and a parameter of the type `TaskContext`. Within one attempt each provider
    is called once, unless `use_cache=False`.
    """
    if not callable(provider):
        raise InvalidTaskFunction(f"Depends(...) takes a function that provides the value, not {provider!r}.")
    return Dependency(provider, use_cache)


@dataclass(frozen=True, eq=False)
class Provider:
    """A function that provides a value, with what it needs itself."""

    function: Callable[..., Any]
    use_cache: bool
    needs: Mapping[str, Provider]
    contexts: tuple[str, ...]
    """Its parameters that receive the TaskContext."""


def providers_of(function: Callable[..., Any], hints: Mapping[str, Any], task_name: str) -> dict[str, Provider]:
    """The parameters of a task function that are dependencies."""
    return {
        name: _provider(dependency, task_name, ())
        for name, parameter in inspect.signature(function).parameters.items()
        if (dependency := _dependency(parameter, hints.get(name))) is not None
    }


def refuse_async(providers: Mapping[str, Provider], task_name: str) -> None:
    """A sync function runs in a thread, where nothing can be awaited."""
    for provider in providers.values():
        function = provider.function
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTaskFunction(
                f"{task_name} is a sync function and depends on {_name(function)}, which is async. Make the task "
                "function async, or the dependency sync."
            )
        refuse_async(provider.needs, task_name)


def _dependency(parameter: inspect.Parameter, hint: Any) -> Dependency | None:
    if isinstance(parameter.default, Dependency):
        return parameter.default
    if get_origin(hint) is Annotated:
        return next((each for each in get_args(hint)[1:] if isinstance(each, Dependency)), None)
    return None


def _provider(dependency: Dependency, task_name: str, around: tuple[Callable[..., Any], ...]) -> Provider:
    function = dependency.provider
    if function in around:
        raise InvalidTaskFunction(f"{task_name}: the dependency {_name(function)} depends on itself.")
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as e:
        raise InvalidTaskFunction(f"{task_name}: the parameters of {_name(function)} can't be read: {e}.") from e
    needs: dict[str, Provider] = {}
    contexts: list[str] = []
    for name, parameter in parameters.items():
        hint = parameter.annotation
        if (own := _dependency(parameter, hint)) is not None:
            needs[name] = _provider(own, task_name, (*around, function))
        elif hint is TaskContext:
            contexts.append(name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InvalidTaskFunction(
                f"{task_name}: the dependency {_name(function)} has the parameter {name!r}, for which there is no "
                "value. Give it a default, Depends(...), or the type TaskContext."
            )
    return Provider(function, dependency.use_cache, needs, tuple(contexts))


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))


# ---- during an attempt ----

_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}


@contextmanager
def override_dependencies(overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """In this block, call other functions, without parameters, in place of these providers; for tests."""
    before = dict(_overrides)
    _overrides.update(overrides)
    try:
        yield
    finally:
        _overrides.clear()
        _overrides.update(before)


@asynccontextmanager
async def provided(providers: Mapping[str, Provider]) -> AsyncIterator[dict[str, Any]]:
    """The values of these parameters; at the end of the block generators go on, and see what was raised in it.

    Without async providers it never waits, so that `run_now` can carry it out in a thread.
    """
    raised: BaseException | None = None
    async with AsyncExitStack() as stack:
        known: dict[Callable[..., Any], Any] = {}
        values = {name: await _value(provider, stack, known) for name, provider in providers.items()}
        try:
            yield values
        except BaseException as e:
            raised = e
            raise
    if raised is not None:  # a generator has swallowed it, which doesn't make a success of the attempt
        raise raised


async def _value(provider: Provider, stack: AsyncExitStack, known: dict[Callable[..., Any], Any]) -> Any:
    if provider.use_cache and provider.function in known:
        return known[provider.function]
    function, arguments = _overrides.get(provider.function), {}
    if function is None:
        function = provider.function
        arguments = {name: await _value(need, stack, known) for name, need in provider.needs.items()}
        arguments.update(dict.fromkeys(provider.contexts, current_task()) if provider.contexts else {})
    if inspect.isasyncgenfunction(function):
        value = await stack.enter_async_context(asynccontextmanager(function)(**arguments))
    elif inspect.isgeneratorfunction(function):
        value = stack.enter_context(contextmanager(function)(**arguments))
    else:
        value = function(**arguments)
        if inspect.iscoroutine(value):
            value = await value
    known[provider.function] = value
    return value


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Carry out a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise RuntimeError("a dependency of a sync function waited; only those of async functions can.")
