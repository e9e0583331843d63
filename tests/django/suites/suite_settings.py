"""A project with nothing but TaskLib, for test suites of others."""

import json
import os

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["tasklib.django"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
TASKS = {"default": {"BACKEND": "suite_backends.Recording", "QUEUES": []}}
