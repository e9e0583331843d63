"""Stores for long payloads outside of the table: a directory, or a bucket of S3."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tasklib.config import Config, PayloadStore
from tasklib.errors import ConfigError

_KEY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[a-z]+-[0-9a-f]{32}")


def store_of(config: Config) -> PayloadStore | None:
    """The store of this configuration; None without one."""
    chosen = config.payload_store
    return _opened(chosen) if isinstance(chosen, str) else chosen


def new_key(task_id: object, column: str) -> str:
    """A key for what a column of this task holds. In the order of keys, old tasks come first."""
    return f"{task_id}/{column}-{secrets.token_hex(16)}"


def is_key(key: object) -> bool:
    """Whether `new_key` makes such keys: others never reach a store."""
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


@cache
def _opened(url: str) -> PayloadStore:
    parts = urlsplit(url)
    if parts.scheme == "s3":
        said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := said.keys() - {"endpoint", "region"}:
            raise ConfigError(f"payload_store: s3://bucket/prefix takes endpoint and region, not {min(unknown)!r}.")
        return S3Store(parts.netloc, parts.path.strip("/"), endpoint=said.get("endpoint"), region=said.get("region"))
    if parts.scheme in ("file", ""):
        return FileStore(parts.path)
    raise ConfigError(f"payload_store must be a directory, file:///directory or s3://bucket/prefix, not {url!r}.")


class FileStore:
    """Payloads as files of one directory, which all programs share: a network file system, or one machine.

    Config(url, payload_store=FileStore("/srv/payloads"))
    """

    def __init__(self, directory: str | Path) -> None:
        if not Path(directory).is_absolute():
            raise ConfigError(f"the directory of a payload store must be absolute, not {str(directory)!r}.")
        self._root = Path(directory)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)  # so that no reader finds half of it

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            raise KeyError(key) from None

    def delete(self, key: str) -> None:
        path = self._path(key)
        path.unlink(missing_ok=True)
        for directory in (path.parent, path.parent.parent):
            with suppress(OSError):  # another payload is in it
                directory.rmdir()

    def keys(self, after: str, limit: int) -> list[str]:
        found: list[str] = []
        for shard in _sorted(self._root, after[:6]):
            for owner in _sorted(self._root / shard, after.partition("/")[0]):
                names = [f"{owner}/{name}" for name in _sorted(self._root / shard / owner, "")]
                found += [key for key in names if key > after and is_key(key)]
                if len(found) >= limit:
                    return found[:limit]
        return found

    def _path(self, key: str) -> Path:
        # Tasks of about five hours share a directory.
        return self._root / key[:6] / key

    def __repr__(self) -> str:
        return f"FileStore({str(self._root)!r})"


class S3Store:
    """Payloads as objects of a bucket, in S3 or what speaks its protocol. Credentials are found as boto3 finds them.

    Config(url, payload_store=S3Store("payloads", endpoint="https://minio.example"))
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint: str | None = None, region: str | None = None
    ) -> None:
        try:
            import boto3
            from botocore.config import Config as BotoConfig
        except ImportError:
            raise ConfigError('a payload store in S3 needs boto3: pip install "tasklib-pg[s3]"') from None
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        limits = BotoConfig(connect_timeout=5, read_timeout=20, retries={"max_attempts": 3, "mode": "standard"})
        self._client: Any = boto3.client("s3", endpoint_url=endpoint, region_name=region, config=limits)

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data)

    def get(self, key: str) -> bytes:
        try:
            data: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"].read()
        except self._client.exceptions.NoSuchKey:
            raise KeyError(key) from None
        return data

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def keys(self, after: str, limit: int) -> list[str]:
        answer = self._client.list_objects_v2(
            Bucket=self._bucket, Prefix=self._prefix, StartAfter=self._prefix + after, MaxKeys=min(limit, 1000)
        )
        return [each["Key"].removeprefix(self._prefix) for each in answer.get("Contents", ())]

    def __repr__(self) -> str:
        return f"S3Store({self._bucket!r})"


def _sorted(directory: Path, start: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name >= start)
    except (FileNotFoundError, NotADirectoryError):
        return []
