"""API tokens: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from tasklib.server.access import client_of
from tasklib.server.openapi import refusals
from tasklib.server.routing import Admin, Given
from tasklib.server.token_models import NewTokenAnswer, TokenAnswer, TokenBody, TokensAnswer
from tasklib.store.tokens import NewToken

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])


@router.get("", operation_id="list_tokens", summary="List tokens")
async def list_tokens(principal: Admin, given: Given) -> TokensAnswer:
    """All tokens, and none with its secret."""
    found = await client_of(principal, given).tokens()
    return TokensAnswer(tokens=[TokenAnswer.model_validate(token) for token in found])


@router.post("", operation_id="create_token", summary="Create a token", status_code=201)
async def create_token(body: TokenBody, principal: Admin, given: Given) -> NewTokenAnswer:
    """The answer has the token itself, this once: the database keeps only a hash."""
    new: NewToken = await client_of(principal, given).create_token(
        body.name, roles=body.roles, queues=body.queues, expires_in=body.expires_in_seconds
    )
    given.tokens.forget()  # with the first one, open mode ends
    info = TokenAnswer.model_validate(new.info)
    return NewTokenAnswer(token=new.text, **info.model_dump())


@router.delete("/{id_or_prefix}", operation_id="revoke_token", summary="Revoke a token", responses=refusals(404))
async def revoke_token(
    id_or_prefix: Annotated[str, Path(max_length=100, description="Its id, or its prefix; not the token itself.")],
    principal: Admin,
    given: Given,
) -> TokenAnswer:
    """End a token for good; all servers notice within a second. Revoking it again changes nothing."""
    revoked = await client_of(principal, given).revoke_token(id_or_prefix)
    given.tokens.forget()
    return TokenAnswer.model_validate(revoked)
