"""The dashboard: screens for browsers, made of templates on the server. `mount(app)` in mounting.py adds them."""
