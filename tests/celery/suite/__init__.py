"""Celery's own integration tests, run against `tasklib.celery`.

Their source is part of Celery's repository and is not kept here:

    git clone --depth 1 https://github.com/celery/celery
    TASKLIB_CELERY_SOURCE=celery pytest -m long tests/celery/test_suite.py
"""
