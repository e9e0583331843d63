"""Types and values that arguments and results are tried with, and how one of them travels."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretBytes,
    SecretStr,
    computed_field,
)
from typing_extensions import TypedDict

from tasklib import task
from tasklib.config import Config
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.round_trip import as_stored

T = TypeVar("T")


CONFIG = Config("postgresql://nowhere/none")


UUID_TEXT = "0629c7de-5e65-469f-9dbe-d16a39cc85a2"


class Aliased(BaseModel):
    a: int = Field(alias="A")
    b: int = Field(validation_alias="B", serialization_alias="C")
    d: int = Field(validation_alias=AliasChoices("D", "DD"), default=4)


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Animal(BaseModel):
    name: str


class Dog(Animal):
    legs: int = 4


class Cat(BaseModel):
    name: str


class Hound(BaseModel):
    name: str


class Hidden(BaseModel):
    shown: int
    hidden: int = Field(default=0, exclude=True)


class Private(BaseModel):
    _notes: list[str] = PrivateAttr(default_factory=list)


class Login(BaseModel):
    user: str
    password: SecretStr
    key: SecretBytes = SecretBytes(b"")


class Box(BaseModel, Generic[T]):
    inside: T


class Shelf(TypedDict):
    since: date
    boxes: list[Box[int]]


class Place(NamedTuple):
    row: int
    since: date


@dataclasses.dataclass
class Point:
    x: float
    labels: tuple[str, ...] = ()


@dataclasses.dataclass
class Counted:
    x: int
    times: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Scaled:
    x: int
    by: dataclasses.InitVar[int] = 1

    def __post_init__(self, by: int) -> None:
        self.scaled = self.x * by


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    YES = "yes"


class Plain:
    """Pydantic knows how to make it, but it has no __eq__."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as s

        return s.no_info_plain_validator_function(
            lambda v: v if isinstance(v, cls) else cls(v),
            serialization=s.plain_serializer_function_ser_schema(lambda v: v.text),
        )


def function_of(annotation: Any) -> TaskFunction[Any, Any]:
    def keep(x):  # type: ignore[no-untyped-def]
        return x

    keep.__annotations__ = {"x": annotation, "return": annotation}
    return task(keep)


def arrived(function: TaskFunction[Any, Any], value: Any) -> Any:
    """The value as the function receives it."""
    return function.arguments.from_json(as_stored(function.arguments.to_json({"x": value})))["x"]


def with_private_notes() -> Private:
    made = Private()
    made._notes.append("private")
    return made


BERLIN = ZoneInfo("Europe/Berlin")


EAST = timezone(timedelta(hours=5, minutes=30))


DAY = date(2026, 11, 16)


ARRIVES: list[tuple[Any, Any]] = [
    (Aliased, Aliased(A=1, B=2, D=3)),
    (list[Aliased], [Aliased(A=1, B=2)]),
    (Computed, Computed(width=3)),
    (Dog, Dog(name="Rex", legs=3)),
    (Dog | Cat, Dog(name="Rex")),
    (Hidden, Hidden(shown=1)),
    (Private, Private()),
    (Box[date], Box[date](inside=DAY)),
    (Shelf, {"since": DAY, "boxes": [Box[int](inside=1)]}),
    (Place, Place(1, DAY)),
    (Point, Point(1.5, ("a", "b"))),
    (Colour, Colour.BLUE),
    (Size, Size.SMALL),
    (Word, Word.YES),
    (Plain, Plain("x")),
    (tuple[int, ...], (1, 2)),
    (tuple[int, date], (1, DAY)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (deque[int], deque([1, 2])),
    (defaultdict[str, int], defaultdict(int, a=1)),
    (dict[int, date], {1: DAY}),
    (dict[UUID, int], {UUID(UUID_TEXT): 1}),
    (OrderedDict[str, int], OrderedDict(a=1, bb=2)),  # by chance in the order of jsonb
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1e400")),
    (float, 1e23),
    (float, 5),
    (Any, 1e23),
    (Any, [1e16, {"a": -1.5e300, "e": '1e23 \\" 1e23'}]),
    (int | float, 1e22),
    (Any, -0.0),
    (bytes, b"\xff\x00"),
    (bytes | str, b"abcd"),
    (str | date, "2026-11-16"),
    (UUID | str, "not an id"),
    (Path | str, Path("a/b")),
    (Cat | Hound, Cat(name="x")),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (time, time(1, 2, 3, tzinfo=UTC)),
    (datetime, datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
    (datetime, datetime(2026, 1, 1)),
    (IPv4Address, IPv4Address("10.0.0.1")),
    (Literal["a", 1], 1),
    (Annotated[str, AfterValidator(str.strip)], "x"),
    (int | None, None),
    (None, None),
]


REFUSED: list[tuple[Any, Any, str]] = [
    (Animal, Dog(name="Rex"), "x: is Dog, and would arrive as Animal"),
    (list[Animal], [Animal(name="a"), Dog(name="Rex")], "x.1: is Dog, and would arrive as Animal"),
    (Hidden, Hidden(shown=1, hidden=2), "x.hidden: would arrive with another value"),
    (Private, with_private_notes(), "x._notes: would arrive with another length"),
    (Counted, Counted(1), "x: can't be read back from JSON .*x.times"),
    (Scaled, Scaled(2, by=3), "x.scaled: would arrive with another value"),
    (Cat | Hound, Hound(name="x"), "x: is Hound, and would arrive as Cat"),
    (Box, Box(inside=DAY), "x.inside: is date, and would arrive as str"),
    (Any, (1, 2), "x: is tuple, and would arrive as list"),
    (Any, {"a": {1}}, "x.a: is set, and would arrive as list"),
    (list, [DAY], "x.0: is date, and would arrive as str"),
    (Any, Word.YES, "x: is Word, and would arrive as str"),
    (object, UUID(UUID_TEXT), "x: is UUID, and would arrive as str"),
    (Any, {1: "a", "1": "b"}, "x: has the key '1', which would be lost or changed"),
    (Any, {1: "a"}, "x: has the key '1', which would be lost or changed"),
    (dict[int | str, int], {1: 2, "1": 3}, "x: has the key '1', which would be lost or changed"),
    (OrderedDict[str, int], OrderedDict(bb=1, a=2), "x: is an OrderedDict, and jsonb doesn't keep the order"),
    (bytes | str, "abcd", "x: is str, and would arrive as bytes"),
    (str | date, DAY, "x: is date, and would arrive as str"),
    (str | Decimal, Decimal(1), "x: is Decimal, and would arrive as str"),
    (str | time, time(1), "x: is time, and would arrive as str"),
    (str | Path, Path("a"), "x: is PosixPath, and would arrive as str"),
    (UUID | str, UUID_TEXT, "x: is str, and would arrive as UUID"),
    (Path | str, "a", "x: is str, and would arrive as PosixPath"),
    (timedelta | str, "P1D", "x: is str, and would arrive as timedelta"),
    (Sequence[int], (1, 2), "x: is tuple, and would arrive as list"),
    (datetime, datetime(1880, 1, 1, tzinfo=BERLIN), "x: would arrive as another moment"),
    (Annotated[str, AfterValidator(lambda s: s + "!")], "x", "x: would arrive with another value"),
]
