"""Django's own tests of task backends, run against `tasklib.django.Backend`.

Their source is part of Django's source distribution and is not kept here:

    pip download --no-deps --no-binary :all: 'django>=6' && tar xzf django-6*.tar.gz
    TASKLIB_DJANGO_SOURCE=django-6.1.3 pytest tests/django/test_suites.py
"""
