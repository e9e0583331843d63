from django.tasks.backends.dummy import DummyBackend as DummyBackend
