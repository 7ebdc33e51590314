"""The Celery app: JSON messages that carry one job id, no result backend."""

import os

from celery import Celery
from django.conf import settings

from controlpanel.lib.redis import TIMEOUT, kombu_url

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlpanel.settings")

# A worker waits on its queue for longer than a page may wait for the broker.
_socket_timeout = 30 if os.environ.get("PANEL_ROLE", "").startswith("worker") else TIMEOUT

app = Celery("controlpanel")
app.conf.update(
    broker_url=kombu_url(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": 7 * 24 * 3600,
        "socket_timeout": _socket_timeout,
        "socket_connect_timeout": TIMEOUT,
        "max_retries": 0,
    },
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=False,
    task_publish_retry=False,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    task_create_missing_queues=True,
    task_default_queue=f"host.{settings.PANEL_HOST}.control",
)
app.autodiscover_tasks(["jobs"])
