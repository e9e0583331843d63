"""What the routes of the API have in common: whom they serve, and how much at a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from tasklib.client.validation import MAX_PAGE
from tasklib.server.access import Principal, allow, services
from tasklib.server.services import Services
from tasklib.store.tokens import Role

Given = Annotated[Services, Depends(services)]

Reader = Annotated[Principal, Depends(allow(Role.VIEWER, Role.SUBMITTER))]
"""Principals that may read tasks: all of them, or their own."""
Submitter = Annotated[Principal, Depends(allow(Role.SUBMITTER))]
Viewer = Annotated[Principal, Depends(allow(Role.VIEWER))]
Approver = Annotated[Principal, Depends(allow(Role.APPROVER))]
Operator = Annotated[Principal, Depends(allow(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(allow(Role.ADMIN))]

Cursor = Annotated[str | None, Query(max_length=2000, description="The `next` of the page before.")]
Limit = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Entries of a page: 50, and at most 200, unless set otherwise.")
]
Reveal = Annotated[
    bool, Query(description="Mask nothing. It needs the role operator, and the audit will say that it was shown.")
]
DEFAULT_PAGE = 50


def page_size(limit: int | None, given: Services) -> int:
    """As many as were asked for, as far as the server allows: `next` leads to the rest."""
    return min(limit or DEFAULT_PAGE, given.settings.max_page, MAX_PAGE - 1)  # one more shows whether there are more
