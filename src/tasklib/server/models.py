"""What the models of requests and answers share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Read(BaseModel):
    """Made of what the client returns: `Answer.model_validate(record)`."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


def example(*examples: dict[str, Any]) -> ConfigDict:
    """For the OpenAPI document. The rest of a class's configuration is inherited."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})
