"""Shards: what a configuration with them says, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tasklib import Config, Shard
from tasklib.db.connect import conninfo
from tasklib.errors import ConfigError

ONE, TWO = "postgresql://app@one.example/app", "postgresql://app@two.example/app"


def two(**changes: Any) -> Config:
    return Config(shards=(Shard(3, TWO, "jobs"), Shard(1, ONE, "jobs", listen_database_url=TWO)), **changes)


def test_the_home_shard_has_the_lowest_number_and_its_address_is_the_configurations() -> None:
    config = two(max_retries=7)
    assert [shard.number for shard in config.shards] == [1, 3]
    assert config.home.number == 1
    assert (config.database_url, config.schema, config.listen_database_url, config.shard) == (ONE, "jobs", TWO, 0)
    assert config.with_changes(max_retries=8).shards == config.shards


def test_the_configuration_of_one_shard_has_its_address_its_number_and_all_other_settings() -> None:
    one = two(max_retries=7).for_shard(3)
    assert (one.database_url, one.schema, one.listen_database_url, one.shard) == (TWO, "jobs", None, 3)
    assert (one.shards, one.max_retries) == ((), 7)
    assert one.for_shard(3) == one
    with pytest.raises(ConfigError, match=r"no shard 2 among the configured ones \(1, 3\)"):
        two().for_shard(2)


def test_without_shards_the_one_database_is_the_home_shard() -> None:
    assert Config(ONE, schema="jobs").home == Shard(0, ONE, "jobs")


def test_a_configuration_of_several_shards_connects_to_none_of_them_by_accident() -> None:
    with pytest.raises(ConfigError, match=r"config\.for_shard"):
        conninfo(two())


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        ((Shard(0, ONE, "a"), Shard(0, TWO, "b")), "two shards have the number 0"),
        (
            (Shard(0, ONE, "a"), Shard(1, "host=one.example port=5432 dbname=app", "a")),
            "shards 0 and 1 are in one schema",
        ),
        ((Shard(0, ONE, "a", weight=0),), "all shards are closed"),
        (("postgresql://",), "shards must be a sequence of Shard"),
    ],
)
def test_shards_that_cant_be_one_tasklib_are_refused(shards: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Config(shards=shards)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"number": 1024}, "from 0 to 1023, not 1024"),
        ({"number": True}, "from 0 to 1023, not True"),
        ({"database_url": "mysql://x"}, "database_url of shard 1 starts with mysql"),
        ({"schema": "x" * 56}, "1 to 55 bytes"),
        ({"weight": -1}, "weight of shard 1 must be a number of 0 or more"),
        ({"weight": float("inf")}, "weight of shard 1 must be a number of 0 or more"),
        ({"past": [(datetime(2026, 1, 1), 1.0)]}, "a time with a zone"),
    ],
)
def test_a_field_of_a_shard_is_checked_by_a_sentence_that_names_it(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Shard(**{"number": 1, "database_url": ONE, **fields})


def test_a_shard_doesnt_show_its_password() -> None:
    assert "secret" not in repr(Shard(0, "postgresql://app:secret@one.example/app"))


def test_shards_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shards.toml"
    file.write_text(
        f"""
        [[shard]]
        number = 1
        database_url = "{TWO}"
        schema = "jobs"
        weight = 0
        past = [{{ until = 2026-11-19T08:00:00Z, weight = 2.0 }}]

        [[shard]]
        number = 0
        database_url = "{ONE}"
        """
    )
    config = Config.from_env({"TASKLIB_SHARDS_FILE": str(file), "DATABASE_URL": "postgresql://of-the-program/x"})
    closed_at = datetime(2026, 11, 19, 8, tzinfo=UTC)
    assert config.shards == (Shard(0, ONE), Shard(1, TWO, "jobs", weight=0, past=((closed_at, 2.0),)))  # type: ignore[arg-type]
    assert config.for_shard(1).shards_file is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "nothing but a \\[\\[shard\\]\\] for each shard"),
        ("[[shard]\n", "the shards can't be read from"),
        ("[[shard]]\nnumber = 0\n", "a shard has no database_url"),
        ("[[shard]]\nnumber = 0\ndatabase_url = 'postgresql://'\nurl = ''\n", "a shard has no 'url'"),
        ("[[shard]]\nnumber = 0\ndatabase_url = 'postgresql://'\npast = [1]\n", "past of shard 0 must be tables"),
    ],
)
def test_a_file_that_cant_be_read_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "shards.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence) as e:
        Config(shards_file=str(file))
    assert str(file) in str(e.value)


@pytest.mark.parametrize("name", ["database_url", "schema", "listen_database_url"])
def test_an_address_beside_shards_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is given, and so are shards"):
        Config(shards=(Shard(0, ONE, "a"),), **{name: "postgresql://other/x"})


def test_the_number_of_one_shard_beside_shards_is_refused() -> None:
    with pytest.raises(ConfigError, match="shard is the number of one shard that is used alone"):
        two(shard=1)
