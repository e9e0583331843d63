from django.tasks.signals import task_enqueued as task_enqueued
