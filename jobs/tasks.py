"""Celery tasks: a message carries an id and is only a wake-up."""

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import close_old_connections

from jobs.services import jobs


@shared_task(ignore_result=True)
def run_job(job_id: int) -> None:
    """Run one job if nobody else does."""
    close_old_connections()
    try:
        jobs.execute(job_id)
    finally:
        close_old_connections()


@worker_shutting_down.connect
def _leave_at_the_next_boundary(**_kwargs: object) -> None:
    jobs.shutting_down.set()
