"""Scripts are run statement by statement."""

from __future__ import annotations

import pytest

from tasklib.migrations.steps import separated


def test_a_script_is_separated_at_the_semicolons_that_end_statements() -> None:
    script = """
    -- A comment; with a semicolon, and it's got a quote.
    CREATE TABLE "a;b" (name text DEFAULT 'it''s; so');
    DO $migration$ BEGIN EXECUTE $inner$ SELECT $$;$$; $inner$; END $migration$;
    SELECT 1; -- the last
    """
    table, block, last = separated(script)
    assert table.endswith("DEFAULT 'it''s; so')")
    assert block == "DO $migration$ BEGIN EXECUTE $inner$ SELECT $$;$$; $inner$; END $migration$"
    assert last == "SELECT 1"


def test_a_statement_without_its_semicolon_is_not_left_out_in_silence() -> None:
    with pytest.raises(ValueError, match="no semicolon at its end: SELECT 2"):
        list(separated("SELECT 1; SELECT 2"))
