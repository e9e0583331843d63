from django.tasks.base import Task as Task
