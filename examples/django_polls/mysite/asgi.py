"""The site, with TaskLib's dashboard at /tasklib/ for people who may see tasks: `uvicorn mysite.asgi:application`."""

import os

from django.core.asgi import get_asgi_application
from tasklib.django.asgi import with_dashboard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")

application = with_dashboard(get_asgi_application(), "/tasklib")
