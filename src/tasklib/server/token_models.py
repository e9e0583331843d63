"""Requests and answers about API tokens."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from tasklib.server.models import Read, example
from tasklib.server.request_models import Body, Name
from tasklib.store.tokens import Role

_TOKEN = {
    "id": "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f",
    "name": "ci",
    "prefix": "157a26d8fcf2",
    "roles": ["submitter"],
    "queues": None,
    "created_at": "2026-05-21T08:30:00Z",
    "created_by": "token:root (0a1b2c3d4e5f)",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
    "is_usable": True,
}


class TokenAnswer(Read):
    """A token, without its secret."""

    model_config = example(_TOKEN)

    id: UUID
    name: str
    prefix: str = Field(description="The part of it that is not secret.")
    roles: list[Role]
    queues: list[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")
    is_usable: bool


class NewTokenAnswer(TokenAnswer):
    """A token that was just created."""

    model_config = example({"token": "tasklib_157a26d8fcf2_...", **_TOKEN})

    token: str = Field(description="The token itself: shown here and never again.")


class TokensAnswer(BaseModel):
    """All tokens, the oldest first: those that expired or were revoked too."""

    model_config = example({"tokens": [_TOKEN]})

    tokens: list[TokenAnswer]


class TokenBody(Body):
    """A token to create."""

    model_config = example(
        {"name": "ci", "roles": ["submitter"], "expires_in_seconds": 7776000},
        {"name": "gpu box", "roles": ["worker"], "queues": ["images"]},
    )

    name: str = Field(min_length=1, max_length=100, description="Its name for people.")
    roles: list[Role] = Field(min_length=1, max_length=len(Role))
    queues: list[Name] | None = Field(
        None, min_length=1, max_length=100, description="With the role worker: the queues it may take tasks from."
    )
    expires_in_seconds: float | None = Field(
        None, strict=True, gt=0, le=100 * 365 * 86400, description="Null: it is valid until it is revoked."
    )
