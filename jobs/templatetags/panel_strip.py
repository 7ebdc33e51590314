"""The strips on top of each page: what keeps jobs from being done, and the GPUs in brief."""

from typing import Any

from django import template

from jobs.views import gpus
from jobs.views.work import strip_context

register = template.Library()


@register.inclusion_tag("jobs/_strip.html")
def jobs_strip() -> dict[str, Any]:
    """Show the strip; it is empty when all is well."""
    return strip_context()


@register.inclusion_tag("jobs/_gpu_strip.html")
def gpu_strip() -> dict[str, Any]:
    """Show the cards; it is empty on a host without any."""
    return gpus.strip_context()
