"""The panel's settings with a data folder of their own; pytest reads them before any conftest."""

import atexit
import os
import shutil
import tempfile

# Short, because sockets lie below it.
_data = tempfile.mkdtemp(prefix="panel-test-", dir="/tmp")
atexit.register(shutil.rmtree, _data, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("PANEL_") or name == "REDIS_URL"]:
    del os.environ[_name]
os.environ["PANEL_DATA"] = _data
os.environ["XDG_RUNTIME_DIR"] = _data
# Tests that run at the same time must not take each other's free port between looking and binding.
_low = 20_000 + os.getpid() % 120 * 100
os.environ["PANEL_SERVER_PORTS"] = f"{_low}-{_low + 99}"

from controlpanel.settings import *  # noqa: E402, F403

TESTING = True
# Pages are tested without collecting static files first.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
