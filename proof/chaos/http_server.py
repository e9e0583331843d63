"""The HTTP server of the fleet: one of the workers, and a submitter, come in through it."""

from __future__ import annotations

from proof.chaos import tasks
from proof.chaos.scene import scene
from tasklib.server.serving import make_server
from tasklib.server.settings import ServerSettings

if __name__ == "__main__":
    here = scene()
    assert tasks.short is not None  # known here, so that arguments are checked
    make_server(here.config(), ServerSettings(port=here.http_port, no_auth=True, dashboard=False)).run()
