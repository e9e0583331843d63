"""Signatures, chains, groups and chords: dicts as in Celery, which `flows.py` makes flows of.

chain(add.s(2, 2), mul.s(8))()
(group(add.s(i, i) for i in range(10)) | tsum.s())().get()
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tasklib.celery.exceptions import NotOnTaskLib

if TYPE_CHECKING:
    from tasklib.celery.app import Celery

S = TypeVar("S", bound="CelerySignature")

REFUSED_OF_SIGNATURES = {
    "election": "TaskLib's leader is elected in the database",
    "flatten_links": "look at options['link']",
    "freeze": "a task of a flow gets its id when the flow is submitted",
    "stamp": "put what you need into headers",
    "stamp_links": "put what you need into headers",
    "prepare_steps": "a flow is planned when it is submitted",
    "unchain_tasks": "look at tasks",
    "replace": "make a new signature, or clone this one",
    "append_to_list_option": "use link and link_error",
    "extend_list_option": "use link and link_error",
}


class CelerySignature(dict[str, Any]):
    """A task with some of its arguments and options, as a dict that can be an argument of a task."""

    TYPES: ClassVar[dict[str, type[CelerySignature]]] = {}
    _kind: ClassVar[str | None] = None
    app: Any

    @classmethod
    def register_type(cls, name: str | None = None) -> Callable[[type[S]], type[S]]:
        """Of a subclass: under this name it is found again in a dict."""

        def add(subclass: type[S]) -> type[S]:
            cls.TYPES[name or subclass.__name__] = subclass
            return subclass

        return add

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], app: Celery | None = None) -> CelerySignature:
        """The signature that a dict of JSON stands for."""
        kind = cls.TYPES.get(d.get("subtask_type") or "", CelerySignature)
        made = kind.__new__(kind)
        dict.__init__(made, dict(d))
        made.app = app
        made["args"] = tuple(made.get("args") or ())
        kwargs = dict(made.get("kwargs") or {})
        made["kwargs"] = kwargs if kind is CelerySignature else _with_signatures(kwargs, app)
        options = made["options"] = dict(made.get("options") or {})
        for name in ("link", "link_error"):
            if options.get(name):
                options[name] = [maybe_signature(each, app) for each in _listed(options[name])]
        made.setdefault("immutable", False)
        made.setdefault("subtask_type", kind._kind)
        return made

    def __init__(
        self,
        task: Any = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        type: Any = None,
        subtask_type: str | None = None,
        immutable: bool = False,
        app: Celery | None = None,
        **ex: Any,
    ) -> None:
        self.app = app
        if isinstance(task, dict):
            source = CelerySignature.from_dict(task, app)
            super().__init__(source)
            return
        name = task if isinstance(task, str) else task.name
        super().__init__(
            task=name,
            args=tuple(args or ()),
            kwargs=dict(kwargs or {}),
            options={**dict(options or {}), **ex},
            subtask_type=subtask_type or self._kind,
            immutable=immutable,
        )

    # ---- parts ----

    args = property(lambda self: self["args"], lambda self, value: self.__setitem__("args", value))
    kwargs = property(lambda self: self["kwargs"], lambda self, value: self.__setitem__("kwargs", value))
    options = property(lambda self: self["options"], lambda self, value: self.__setitem__("options", value))
    subtask_type = property(lambda self: self["subtask_type"])
    immutable = property(lambda self: self["immutable"], lambda self, value: self.__setitem__("immutable", value))
    task = property(lambda self: self["task"], lambda self, value: self.__setitem__("task", value))
    id = property(lambda self: self["options"].get("task_id"))
    parent_id = root_id = property(lambda self: None)

    @property
    def name(self) -> str:
        """The name of the task."""
        name: str = self["task"]
        return name

    @property
    def type(self) -> Any:
        """The task, if this program has it."""
        return self._app().tasks[self["task"]]

    def __getattr__(self, name: str) -> Any:
        if reason := REFUSED_OF_SIGNATURES.get(name):
            raise NotOnTaskLib(f"TaskLib has no {name} of a signature: {reason}.")
        raise AttributeError(f"a signature has no attribute {name!r}")

    def _app(self) -> Celery:
        from tasklib.celery.app import current_app_or_default

        return self.app or current_app_or_default()

    # ---- calling ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task here and now, as a function."""
        made = self.clone(args, kwargs)
        return made.type(*made.args, **made.kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Submit it with these further arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Submit it with these further arguments and options."""
        from tasklib.celery.flows import submit_canvas

        return submit_canvas(self._app(), self.clone(args, kwargs, **options))

    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run it here and now."""
        from tasklib.celery.eager import apply_canvas

        return apply_canvas(self._app(), self.clone(args, kwargs, **options))

    def AsyncResult(self, task_id: str) -> Any:
        """The result of a task by its id."""
        return self._app().AsyncResult(task_id)

    # ---- changing ----

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """A copy with these further arguments, in front of its own, and options."""
        made = CelerySignature.from_dict(self, self.app)
        if not made["immutable"]:
            made["args"] = (*(args or ()), *made["args"])
            made["kwargs"] = {**made["kwargs"], **(kwargs or {})}
        made["options"] = {**made["options"], **options}
        return made

    partial = clone

    def __deepcopy__(self, memo: Any) -> Any:
        return CelerySignature.from_dict({name: deepcopy(value, memo) for name, value in self.items()}, self.app)

    def __copy__(self) -> Any:
        return self.clone()

    def __reduce__(self) -> Any:
        return CelerySignature.from_dict, (dict(self),)

    def set(self, immutable: bool | None = None, **options: Any) -> Any:
        """Set options: `add.s(2, 2).set(countdown=1)`."""
        if immutable is not None:
            self.set_immutable(immutable)
        self["options"].update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Whether it takes nothing from the task before."""
        self["immutable"] = immutable

    def link(self, callback: Any) -> Any:
        """A task to run with the result of this one, when it has succeeded."""
        return self._add("link", callback)

    def link_error(self, errback: Any) -> Any:
        """A task to run when this one has failed."""
        return self._add("link_error", errback)

    def on_error(self, errback: Any) -> Any:
        """The same, and returns the signature itself."""
        self.link_error(errback)
        return self

    def _add(self, option: str, callback: Any) -> Any:
        known = self["options"].setdefault(option, [])
        if not isinstance(known, list):
            known = self["options"][option] = _listed(known)
        if callback not in known:
            known.append(callback)
        return callback

    # ---- composing ----

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, CelerySignature):
            return NotImplemented
        return chained(self, other)

    def __invert__(self) -> Any:
        return self.apply_async().get()

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other) if isinstance(other, dict) else NotImplemented

    def reprcall(self, *args: Any, **kwargs: Any) -> str:
        """The call as text."""
        made = self.clone(args, kwargs)
        named = [f"{name}={value!r}" for name, value in made["kwargs"].items()]
        return f"{made['task']}({', '.join([*map(repr, made['args']), *named])})"

    def __repr__(self) -> str:
        return self.reprcall()

    def __json__(self) -> dict[str, Any]:
        return dict(self)


class _Combined(CelerySignature):
    """Signatures in `kwargs["tasks"]`."""

    @property
    def tasks(self) -> Any:
        """The signatures it is made of."""
        return self["kwargs"]["tasks"]

    @tasks.setter
    def tasks(self, tasks: Any) -> None:
        self["kwargs"]["tasks"] = tasks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs) if _has_tasks(self) else None

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """A copy; further keyword arguments go to its tasks."""
        made = super().clone(args, None, **options)
        if kwargs and not made["immutable"]:
            made["options"]["partial_kwargs"] = {**made["options"].get("partial_kwargs", {}), **kwargs}
        return made

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return self.tasks[key] if isinstance(key, int | slice) else dict.__getitem__(self, key)


@CelerySignature.register_type("chain")
class chain(_Combined):
    """Tasks one after the other; each gets the result of the one before as its first argument."""

    _kind = "chain"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        if len(tasks) == 1 and not isinstance(tasks[0], dict):
            tasks = tuple(tasks[0])
        flat = [part for each in tasks for part in _links_of(maybe_signature(each, app))]
        super().__init__("celery.chain", (), {"tasks": flat}, options, app=app)

    def run(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        """The same as `apply_async`."""
        return self.apply_async(args, kwargs, **options)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks)) or "chain()"


@CelerySignature.register_type("group")
class group(_Combined):
    """Tasks side by side."""

    _kind = "group"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        if len(tasks) == 1:
            only = tasks[0]
            if isinstance(only, group):
                tasks = tuple(only.tasks)
            elif not isinstance(only, CelerySignature | dict):
                tasks = tuple(only)
        # Copies, as in Celery: what is linked to a member changes no signature of the caller's.
        made = [maybe_signature(e if isinstance(e, dict) else signature(e, app=app), app, clone=True) for e in tasks]
        super().__init__("celery.group", (), {"tasks": made}, options, app=app)

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> Any:
        """Give its tasks countdowns that grow from `start` by `step`, up to `stop`."""
        for number, task in enumerate(self.tasks):
            seconds = start + number * step
            task.set(countdown=seconds if stop is None else min(seconds, stop))
        return self

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


@CelerySignature.register_type("chord")
class chord(CelerySignature):
    """A group, and a task that gets the list of its results."""

    _kind = "chord"

    def __init__(
        self, header: Any, body: Any = None, task: str = "celery.chord", app: Celery | None = None, **options: Any
    ) -> None:
        parts = header if isinstance(header, group) else group(header, app=app)
        super().__init__(task, (), {"header": parts, "body": maybe_signature(body, app)}, options, app=app)

    @property
    def tasks(self) -> Any:
        """The signatures of the header."""
        header = self["kwargs"]["header"]
        return header.tasks if isinstance(header, group) else _listed(header)

    @property
    def body(self) -> Any:
        """The signature that gets the results."""
        return self["kwargs"]["body"]

    @body.setter
    def body(self, body: Any) -> None:
        self["kwargs"]["body"] = body

    def __call__(self, body: Any = None, **options: Any) -> Any:
        return self.apply_async((), {"body": body} if body is not None else {}, **options)

    def run(self, header: Any, body: Any, *_: Any, **options: Any) -> Any:
        """Submit this header with this body."""
        return chord(header, body, app=self.app).apply_async(**options)

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """A copy, with another body if one is given."""
        body = (kwargs or {}).get("body")
        made = super().clone(args, {}, **options)
        if body is not None:
            made["kwargs"]["body"] = maybe_signature(body, self.app).clone()
        return made

    def link(self, callback: Any) -> Any:
        """A task to run with the result of the body."""
        self.body.link(callback)
        return callback

    def __repr__(self) -> str:
        return f"chord({self.tasks!r}, {self.body!r})"


class _OverItems(CelerySignature):
    _task: ClassVar[str]

    def __init__(self, task: Any, it: Iterable[Any], app: Celery | None = None, **options: Any) -> None:
        kwargs = {"task": maybe_signature(task, app), "it": [*it]}
        super().__init__(self._task, (), kwargs, options, immutable=True, app=app)

    def __repr__(self) -> str:
        return f"[{self['kwargs']['task'].name}(x) for x in {self['kwargs']['it']!r}]"


@CelerySignature.register_type("xmap")
class xmap(_OverItems):
    """One task that calls another for each item."""

    _kind = "xmap"
    _task = "celery.map"


@CelerySignature.register_type("xstarmap")
class xstarmap(_OverItems):
    """One task that calls another for each list of arguments."""

    _kind = "xstarmap"
    _task = "celery.starmap"


@CelerySignature.register_type("chunks")
class chunks(CelerySignature):
    """Tasks that each call another for `n` lists of arguments."""

    _kind = "chunks"

    def __init__(self, task: Any, it: Iterable[Any], n: int, app: Celery | None = None, **options: Any) -> None:
        kwargs = {"task": maybe_signature(task, app), "it": [*it], "n": n}
        super().__init__("celery.chunks", (), kwargs, options, immutable=True, app=app)

    def group(self) -> Any:
        """As a group of tasks."""
        kwargs = self["kwargs"]
        items = iter(kwargs["it"])
        parts = iter(lambda: list(itertools.islice(items, kwargs["n"])), [])
        return group([xstarmap(kwargs["task"], part, app=self.app) for part in parts], app=self.app)

    def __call__(self, *_: Any, **options: Any) -> Any:
        return self.apply_async(**options)

    @classmethod
    def apply_chunks(cls, task: Any, it: Iterable[Any], n: int, app: Celery | None = None) -> Any:
        """Submit such tasks."""
        return cls(task, it, n, app=app)()


def signature(
    varies: Any, args: Any = None, kwargs: Any = None, app: Celery | None = None, **options: Any
) -> CelerySignature:
    """A signature of a task, of its name, or of the dict that a signature was."""
    if isinstance(varies, dict):
        return varies.clone() if isinstance(varies, CelerySignature) else CelerySignature.from_dict(varies, app)
    return CelerySignature(varies, args, kwargs, app=app, **options)


subtask = signature


def maybe_signature(d: Any, app: Celery | None = None, clone: bool = False) -> Any:
    """A signature, if this is one or a dict of one; else the value as it is."""
    if isinstance(d, CelerySignature):
        return d.clone() if clone else d
    return CelerySignature.from_dict(d, app) if isinstance(d, dict) and "task" in d else d


def chained(left: CelerySignature, right: CelerySignature) -> CelerySignature:
    """`left | right`, as Celery upgrades it: a group before a task is a chord, also a group of one task."""
    app = left.app or right.app
    if _is_group_of_one(left):
        return chord(left, right, app=app)
    if _is_group_of_one(right) and not isinstance(left, group):
        return chain(left, right.tasks[0], app=app)
    return chain(left, right, app=app)


def _is_group_of_one(part: Any) -> bool:
    return isinstance(part, group) and len(part.tasks) == 1


def _links_of(part: CelerySignature) -> list[CelerySignature]:
    """What a part adds to a chain: of a chain without options of its own, its tasks."""
    is_plain = isinstance(part, chain) and not part["options"] and not part["args"]
    return list(part.tasks) if is_plain else [part]


def _has_tasks(part: Any) -> bool:
    return bool(part.tasks)


def _with_signatures(kwargs: dict[str, Any], app: Celery | None) -> dict[str, Any]:
    """Of a chain, a group or a chord: the dicts in it as signatures again."""
    for name in ("header", "body", "task"):
        if isinstance(kwargs.get(name), dict):
            kwargs[name] = maybe_signature(kwargs[name], app, clone=True)
    if isinstance(kwargs.get("header"), list | tuple):
        kwargs["header"] = group(kwargs["header"], app=app)
    if isinstance(kwargs.get("tasks"), list | tuple):
        kwargs["tasks"] = [maybe_signature(each, app, clone=True) for each in kwargs["tasks"]]
    return kwargs


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


Signature = CelerySignature
"""As Celery calls it."""
