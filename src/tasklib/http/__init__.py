"""Clients that go to a `tasklib server` over HTTP, for programs without access to the database.

from tasklib.http import HttpClient

with HttpClient("https://queue.example.com", token="tasklib_...") as client:
    task_id = client.submit_task("send_email", to="a@example.com", registered_elsewhere=True)

They are clients like any other: the same methods, arguments, answers and errors.
"""

from tasklib.http.clients import AsyncHttpClient, HttpClient, init

__all__ = ["AsyncHttpClient", "HttpClient", "init"]
