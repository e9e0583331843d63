"""A small project. The database comes from SHOP_DATABASE, the setting TASKLIB from SHOP_TASKLIB, both JSON."""

import json
import os

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "mysite.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tasklib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"
DATABASES = {
    "default": json.loads(os.environ["SHOP_DATABASE"]),
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
TASKLIB = json.loads(os.environ.get("SHOP_TASKLIB", "{}"))
TASKS = {
    "default": {"BACKEND": "tasklib.django.Backend"},
    "patient": {"BACKEND": "tasklib.django.Backend", "QUEUES": ["slow"], "OPTIONS": {"max_retries": 2}},
}
