"""Arguments arrive equal, or are refused when they are submitted; results come back equal, or the attempt fails."""

from __future__ import annotations

import dataclasses
import json
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

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    computed_field,
)
from typing_extensions import TypedDict

from tasklib import Client, task
from tasklib.config import Config
from tasklib.errors import ResultNotStorable, TaskExecutionError
from tasklib.executors.functions import result_text
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.round_trip import as_stored, difference, with_whole_floats

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


@pytest.mark.parametrize(("annotation", "value"), ARRIVES)
def test_what_is_accepted_arrives_equal(annotation: Any, value: Any) -> None:
    function = function_of(annotation)
    received = arrived(function, value)
    assert difference(TypeAdapter(annotation).validate_python(value), received) is None
    assert received == value or isinstance(value, datetime | Plain)


@pytest.mark.parametrize(("annotation", "value", "reason"), REFUSED)
def test_what_would_arrive_different_is_refused_by_name_and_reason(annotation: Any, value: Any, reason: str) -> None:
    with pytest.raises(TaskExecutionError, match=rf"the arguments of keep can't be stored: {reason}") as caught:
        function_of(annotation).arguments.to_json({"x": value})
    assert caught.value.field == "x"


@pytest.mark.parametrize(("annotation", "value"), ARRIVES)
def test_a_result_of_the_declared_type_comes_back_equal(annotation: Any, value: Any) -> None:
    function = function_of(annotation)
    text = json.dumps(json.loads(as_stored(result_text(value, CONFIG, function.results.to_json)))["value"])
    back = TypeAdapter(Annotated[annotation, Field()]).validator.validate_json(text, by_name=True)
    if not isinstance(value, bytes):  # in base64, which this adapter doesn't know
        assert difference(value, back, exact=False) is None


RESULTS_REFUSED = [r for r in REFUSED if r[0] not in (Any, object, list) and r[0] is not Counted]


@pytest.mark.parametrize(("annotation", "value", "reason"), RESULTS_REFUSED)
def test_a_result_that_would_come_back_different_fails_the_attempt(annotation: Any, value: Any, reason: str) -> None:
    with pytest.raises(ResultNotStorable, match=r"the return value .* can't be stored"):
        result_text(value, CONFIG, function_of(annotation).results.to_json)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "5"), (list[int], ["a"]), (Animal, {"name": 1}), (str, 5), (int, 5.5), (SecretStr, SecretStr("x"))],
)
def test_a_result_that_is_not_what_the_function_declares_fails_the_attempt(annotation: Any, value: Any) -> None:
    with pytest.raises(ResultNotStorable, match=r"the return value .* can't be stored"):
        result_text(value, CONFIG, function_of(annotation).results.to_json)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [(float, 5, "5"), (int, True, "1"), (int, Size.SMALL, "1"), (dict[str, float], {"a": 1}, '{"a":1}')],
)
def test_a_result_may_equal_what_is_declared_without_being_it(annotation: Any, value: Any, text: str) -> None:
    assert function_of(annotation).results.to_json(value) == text


@pytest.mark.parametrize("value", [(1, DAY), {"a": {1}}, Animal(name="a"), 1e23])
def test_a_result_without_a_declared_type_is_stored_in_the_form_that_json_has(value: Any) -> None:
    def undeclared() -> Any: ...

    def declared() -> dict[str, Any]: ...

    text = task(undeclared).results.to_json(value)
    assert task(declared).results.to_json({"a": value}) == f'{{"a":{text}}}'
    assert json.loads(text) == TypeAdapter(Any).dump_python(value, mode="json")


def test_a_result_whose_keys_are_the_same_text_is_refused() -> None:
    with pytest.raises(ResultNotStorable, match="two keys that are the same text in JSON"):
        result_text({1: "a", "1": "b"}, CONFIG, function_of(Any).results.to_json)


@pytest.mark.parametrize("value", [SecretStr("hunter2"), [Login(user="a", password="hunter2")], {"a": SecretStr("b")}])
def test_a_secret_in_a_result_is_refused_instead_of_stored_as_stars(value: Any) -> None:
    with pytest.raises(ResultNotStorable, match="holds a secret") as caught:
        result_text(value, CONFIG, function_of(Any).results.to_json)
    assert "hunter2" not in str(caught.value)


SECRETS: list[tuple[Any, Any]] = [
    (SecretStr, SecretStr("hunter2")),
    (SecretStr, SecretStr("")),
    (SecretStr, SecretStr("**********")),
    (SecretBytes, SecretBytes(b"\xff\x00")),
    (Secret[int], Secret[int](5)),
    (SecretStr | None, SecretStr("a")),
    (Login, Login(user="**********", password="hunter2", key=b"key")),
    (dict[str, list[Login]], {"all": [Login(user="a", password="b"), Login(user="c", password="d")]}),
]


@pytest.mark.parametrize(("annotation", "value"), SECRETS)
def test_a_secret_arrives_with_its_value(annotation: Any, value: Any) -> None:
    assert arrived(function_of(annotation), value) == value


def test_a_stored_secret_is_marked_where_it_stands() -> None:
    stored = json.loads(function_of(Login).arguments.to_json({"x": Login(user="ann", password="hunter2")}))
    assert stored == {"x": {"user": "ann", "password": {"$secret": "hunter2"}, "key": {"$secret": ""}}}


def test_a_secret_inserted_without_a_mark_is_read_too() -> None:
    assert function_of(SecretStr).arguments.from_json('{"x": "hunter2"}') == {"x": SecretStr("hunter2")}


def test_a_dict_that_looks_like_a_marked_secret_arrives_as_it_is() -> None:
    function = function_of(Any)
    assert arrived(function, {"$secret": "x"}) == {"$secret": "x"}


def test_a_refused_secret_is_not_in_the_message() -> None:
    class Stubborn(BaseModel):
        password: Annotated[SecretStr, AfterValidator(lambda s: SecretStr(s.get_secret_value() + "!"))]

    with pytest.raises(TaskExecutionError, match=r"x\.password: would arrive with another value") as caught:
        function_of(Stubborn).arguments.to_json({"x": {"password": "hunter2"}})
    assert "hunter2" not in str(caught.value)


def test_arguments_by_other_names_have_their_type() -> None:
    @task
    def count(**days: date) -> None: ...

    text = count.arguments.to_json({"first": "2026-11-16"})
    assert count.arguments.from_json(text) == {"first": DAY}
    with pytest.raises(TaskExecutionError, match="first: "):
        count.arguments.to_json({"first": "never"})


def test_a_row_may_have_a_models_aliases() -> None:
    assert function_of(Aliased).arguments.from_json('{"x": {"A": 1, "B": 2}}') == {"x": Aliased(A=1, B=2)}


# ---- PostgreSQL's part ----

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e16, -1e16, 1e22, 1e23, 1.5e300])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé€0", max_size=3), inner, max_size=4),
    max_leaves=8,
).filter(lambda v: "\\u0000" not in json.dumps(v))


@given(value=json_values)
@example(value={"bb": 1, "a": 2, "é": 3, "": 4})
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_jsonb_gives_back_what_was_tried(value: Any, shared_db: psycopg.Connection) -> None:
    text = with_whole_floats(json.dumps(value))
    row = shared_db.execute("SELECT %s::jsonb::text", [text]).fetchone()
    assert row is not None
    stored = json.loads(row[0], object_pairs_hook=list)
    tried = json.loads(as_stored(text), object_pairs_hook=list)
    assert difference(stored, tried) is None


@pytest.fixture(scope="module")
def shared_db(server_url: str) -> Any:
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield connection


def test_a_secret_and_a_large_float_pass_through_the_table(client: Client, db: psycopg.Connection) -> None:
    @task
    def both(login: Login, number: Any) -> None: ...

    login = Login(user="ann", password="hunter2", key=b"\x01")
    client.submit_task(both, login=login, number=1e23)
    (text,) = db.execute("SELECT kwargs::text FROM tasks").fetchone() or ("",)
    assert both.arguments.from_json(text) == {"login": login, "number": 1e23}


@pytest.fixture
def client(config: Config) -> Any:
    with Client(config) as made:
        yield made


# ---- any type ----

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, text),
    (bool, st.booleans()),
    (None, st.none()),
    (bytes, st.binary(max_size=5)),
    (date, st.dates()),
    (datetime, st.datetimes() | st.datetimes(timezones=st.sampled_from([UTC, EAST]))),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Path, text.filter(lambda t: t not in ("", "/")).map(Path)),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (SecretStr, text.map(SecretStr)),
    (Animal, st.builds(Animal, name=text) | st.builds(Dog, name=text)),
    (Cat, st.builds(Cat, name=text)),
    (Aliased, st.builds(lambda a, b: Aliased(A=a, B=b), st.integers(), st.integers())),
    (Computed, st.builds(Computed, width=st.integers())),
    (Hidden, st.builds(Hidden, shown=st.integers(), hidden=st.integers(0, 1))),
    (Point, st.builds(Point, x=st.floats(allow_nan=False), labels=st.lists(text, max_size=2).map(tuple))),
    (Scaled, st.builds(Scaled, st.integers(), by=st.integers(0, 2))),
    (
        Any,
        st.one_of(st.integers(), text, st.floats(), st.dates(), st.tuples(text), st.sets(text), st.sampled_from(Word)),
    ),
]
HASHABLE = (int, str, bool, date, UUID, Decimal, Colour, Size)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def wrapped(chosen: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        kind, values = chosen
        options: list[tuple[Any, st.SearchStrategy[Any]]] = [
            (list[kind], st.lists(values, max_size=3)),
            (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),
            (dict[str, kind], st.dictionaries(text, values, max_size=3)),
            (Box[kind], st.builds(Box[kind], inside=values)),
            (kind | None if kind is not None else None, values | st.none()),
        ]
        if kind in HASHABLE:
            options.append((set[kind], st.sets(values, max_size=3)))
            options.append((dict[kind, int], st.dictionaries(values, st.integers(), max_size=3)))
        return st.sampled_from(options)

    def united(two: tuple[Any, Any]) -> Any:
        (a, of_a), (b, of_b) = two
        return (a | b if {a, b} != {None} and Any not in (a, b) else Any, of_a | of_b)

    return inner.flatmap(wrapped) | st.tuples(inner, inner).map(united)


types = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=3)


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_whatever_submit_accepts_of_any_type_arrives_equal(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    function = function_of(annotation)
    value = data.draw(values)
    try:
        received = arrived(function, value)
    except TaskExecutionError:
        return  # refused, by name and reason
    validated = function.arguments._adapter.validator.validate_python({"x": value})["x"]
    assert received == validated
    assert difference(validated, received) is None  # the types too, all the way down
