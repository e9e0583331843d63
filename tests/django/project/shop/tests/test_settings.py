"""Where the configuration comes from, and what is said about a wrong one."""

import os
from unittest.mock import patch

from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.test import SimpleTestCase, override_settings
from psycopg.conninfo import conninfo_to_dict

from tasklib import ConfigError
from tasklib.client.default import configured
from tasklib.django.settings import config


class Settings(SimpleTestCase):
    databases = {"lite"}  # since 6.1 Django's own checks ask each database what it can do

    def test_the_connection_is_that_of_databases_without_what_is_only_djangos(self):
        options = {"sslmode": "prefer", "pool": False, "isolation_level": 2, "assume_role": "the shop"}
        with patch.dict(connections["default"].settings_dict, NAME="north", PASSWORD="o'h @/", OPTIONS=options):
            parts = conninfo_to_dict(config().database_url)
        self.assertEqual((parts["dbname"], parts["password"], parts["sslmode"]), ("north", "o'h @/", "prefer"))
        self.assertEqual(parts["options"], r"-c role=the\ shop")

    def test_the_setting_counts_before_variables_and_databases_before_both(self):
        variables = {
            "TASKLIB_DATABASE_URL": "postgresql://elsewhere/other",
            "TASKLIB_MAX_RETRIES": "7",
            "TASKLIB_CRASH_LIMIT": "9",
        }
        with patch.dict(os.environ, variables), override_settings(TASKLIB={"MAX_RETRIES": 5}):
            found = config()
        self.assertEqual((found.max_retries, found.crash_limit), (5, 9))
        self.assertNotIn("elsewhere", found.database_url)

    def test_the_module_level_calls_follow_a_changed_database(self):
        with patch.dict(connections["default"].settings_dict, NAME="another"):
            self.assertEqual(conninfo_to_dict(configured().database_url)["dbname"], "another")

    def test_a_database_that_is_not_postgresql_is_an_error_of_check_that_says_what_to_do(self):
        with override_settings(TASKLIB={"DATABASE": "lite"}):
            with self.assertRaisesMessage(SystemCheckError, "tasklib.E001) TaskLib needs PostgreSQL"):
                call_command("check")
            with self.assertRaisesMessage(ConfigError, "has the engine django.db.backends.sqlite3"):
                config()

    def test_wrong_settings_are_named(self):
        for wrong, message in (
            ({"SHARDS_FILE": "shards.toml"}, "leads to one database: it has no shards"),
            ({"MAX_RETRY": 5}, "has no entry 'MAX_RETRY'. Did you mean 'MAX_RETRIES'?"),
            ({"DATABASE_URL": "postgresql://x/y"}, "The database's address is in DATABASES."),
            ({"DATABASE": "south"}, "there is no DATABASES['south']"),
            ({"MAX_RETRIES": -1}, "max_retries"),
            (["default"], "must be a dictionary"),
        ):
            with self.subTest(wrong), override_settings(TASKLIB=wrong), self.assertRaisesMessage(ConfigError, message):
                config()
