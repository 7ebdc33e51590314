"""Settings of the control panel; everything a host may choose comes from the environment."""

from pathlib import Path

import dj_database_url
from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from controlpanel.lib.env import (
    data_folder,
    embedded_url,
    env_bool,
    env_int,
    env_ports,
    env_smtp,
    env_str,
    env_url,
    runtime_folder,
    secret_key,
)

BASE_DIR = Path(__file__).resolve().parent.parent

# The panel itself
PANEL_DATA = data_folder()
PANEL_RUNTIME = runtime_folder(PANEL_DATA)
PANEL_BIND = env_str("PANEL_BIND", "127.0.0.1")
PANEL_PORT = env_int("PANEL_PORT", 8800, 1, 65535)
PANEL_HOST = env_str("PANEL_HOST", "local")
PANEL_SERVER_PORTS = env_ports("PANEL_SERVER_PORTS", "18080-18179")
PANEL_URL = env_url("PANEL_URL")
PANEL_PRIVATE_HOSTS = env_str("PANEL_PRIVATE_HOSTS")

SECRET_KEY = secret_key(PANEL_DATA)
DEBUG = env_bool("PANEL_DEBUG", False)
REDIS_URL = env_str("REDIS_URL")
REDIS_EMBEDDED = not REDIS_URL
if REDIS_EMBEDDED:
    REDIS_URL = embedded_url(PANEL_RUNTIME)

# Addresses and cookies: PANEL_URL says how people reach the panel.
if PANEL_URL:
    ALLOWED_HOSTS = [PANEL_URL.host, "127.0.0.1", "localhost", "[::1]"]
    CSRF_TRUSTED_ORIGINS = [PANEL_URL.origin]
elif PANEL_BIND in {"127.0.0.1", "::1", "localhost"}:
    ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
else:
    ALLOWED_HOSTS = ["*"]
SECURE = bool(PANEL_URL and PANEL_URL.secure)
SESSION_COOKIE_SECURE = SECURE
CSRF_COOKIE_SECURE = SECURE
SECURE_SSL_REDIRECT = False
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = False
SECURE_HSTS_PRELOAD = False
# The TLS proxy redirects; HSTS for sibling hosts and preload lists are the domain owner's decision.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]
if not SECURE:
    SILENCED_SYSTEM_CHECKS += ["security.W004", "security.W012", "security.W016"]
SUB_PATH = PANEL_URL.path if PANEL_URL else ""
FORCE_SCRIPT_NAME = SUB_PATH or None
SESSION_COOKIE_NAME = f"panel_session_{PANEL_PORT}"
CSRF_COOKIE_NAME = f"panel_csrf_{PANEL_PORT}"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{SUB_PATH}/"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:", "blob:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
    }
}

INSTALLED_APPS = [
    "controlpanel.apps.ControlPanelConfig",
    "servers.apps.ServersConfig",
    "jobs.apps.JobsConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "controlpanel.static.PanelStaticFilesConfig",
    "servestatic",
    "django_htmx",
    "allauth",
    "allauth.account",
    "axes",
    "csp",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "controlpanel.urls"
ASGI_APPLICATION = "controlpanel.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "controlpanel.context.panel",
            ],
        },
    }
]

# Data
DATABASE_URL = env_str("DATABASE_URL")
DATABASES = {
    "default": dj_database_url.parse(DATABASE_URL)
    if DATABASE_URL
    else {"ENGINE": "django.db.backends.sqlite3", "NAME": PANEL_DATA / "db.sqlite3"}
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # A file, never memory: several processes share it, and WAL needs a file.
    DATABASES["default"]["TEST"] = {"NAME": PANEL_DATA / "test.sqlite3"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_500_000
FILE_UPLOAD_PERMISSIONS = 0o600

# People
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "overview"
ACCOUNT_ADAPTER = "controlpanel.accounts.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_RATE_LIMITS = False  # axes counts failed sign-ins; a second limiter would need a shared cache
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_HANDLER = "axes.handlers.database.AxesDatabaseHandler"
AXES_LOCKOUT_TEMPLATE = "account/lockout.html"
AXES_VERBOSE = False

# Mail, for alerts only
_mail = env_smtp("PANEL_SMTP_URL")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if _mail else 'console'}.EmailBackend"
EMAIL_HOST = _mail.host if _mail else ""
EMAIL_PORT = _mail.port if _mail else 25
EMAIL_HOST_USER = _mail.user if _mail else ""
EMAIL_HOST_PASSWORD = _mail.password if _mail else ""
EMAIL_USE_TLS = bool(_mail and _mail.tls == "starttls")
EMAIL_USE_SSL = bool(_mail and _mail.tls == "tls")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env_str("PANEL_MAIL_FROM", "llamacpp-panel@localhost")

# Words and time
LANGUAGE_CODE = "en"
LANGUAGES = [
    ("en", _("English")),
    ("zh-hant", _("Traditional Chinese")),
    ("zh-hans", _("Simplified Chinese")),
]
LOCALE_PATHS = [BASE_DIR / "controlpanel" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = env_str("TZ", "UTC")

# Static files: collected once at install, served by the web process itself
STATIC_URL = f"{SUB_PATH}/static/"
STATIC_ROOT = BASE_DIR / "static" / "collected"
STATICFILES_DIRS = [
    BASE_DIR / "static" / "panel",
    ("tabler", BASE_DIR / "node_modules" / "@tabler" / "core" / "dist"),
    ("tabler-icons", BASE_DIR / "node_modules" / "@tabler" / "icons-webfont" / "dist"),
    ("uplot", BASE_DIR / "node_modules" / "uplot" / "dist"),
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "servestatic.storage.CompressedManifestStaticFilesStorage"
    },
}
SERVESTATIC_ALLOW_ALL_ORIGINS = False

# Celery: no result backend (the job row is the truth); a queue message is only a wake-up.
CELERY_PUBLISH_TIMEOUT = 1
CELERY_TASK_IGNORE_RESULT = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": env_str("PANEL_LOG_LEVEL", "WARNING").upper()},
    "loggers": {
        "jobs": {"level": "INFO"},
        "servers": {"level": "INFO"},
        "controlpanel": {"level": "INFO"},
        "axes": {"level": "ERROR"},
    },
}
