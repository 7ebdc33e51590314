"""The strip on top of each page: what keeps jobs from being done."""

from typing import Any

from django import template

from jobs.views.rows import strip_context

register = template.Library()


@register.inclusion_tag("jobs/_strip.html")
def jobs_strip() -> dict[str, Any]:
    """Show the strip; it is empty when all is well."""
    return strip_context()
