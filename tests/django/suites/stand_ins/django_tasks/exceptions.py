from django.tasks.exceptions import InvalidTask as InvalidTaskError
from django.tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist

__all__ = ["InvalidTaskError", "TaskResultDoesNotExist"]
