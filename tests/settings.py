"""The panel's settings with a data folder of their own; pytest reads them before any conftest."""

import atexit
import os
import shutil
import tempfile

# Short, because sockets lie below it.
_data = os.environ.get("PANEL_TEST_DATA") or tempfile.mkdtemp(prefix="panel-test-", dir="/tmp")
if "PANEL_TEST_DATA" not in os.environ:
    atexit.register(shutil.rmtree, _data, ignore_errors=True)
for _name in [
    name for name in os.environ if name.startswith("PANEL_") or name in {"REDIS_URL", "DATABASE_URL"}
]:
    del os.environ[_name]
os.environ["PANEL_DATA"] = _data
os.environ["XDG_RUNTIME_DIR"] = _data

from controlpanel.settings import *  # noqa: E402, F403

# Pages are tested without collecting static files first.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
