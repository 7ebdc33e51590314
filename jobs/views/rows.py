"""What jobs are about, by name and address: for the activity page and the strip."""

from django.urls import reverse

from jobs.models import Build, Download, Host, ModelArtifact, ModelFolder
from jobs.registry import Subject


def build_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the builds that jobs are about."""
    rows = Build.objects.filter(pk__in=_numbers(keys)).values_list("pk", "name")
    return {str(pk): Subject(name, reverse("build-detail", args=[pk])) for pk, name in rows}


def host_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the hosts that jobs are about."""
    rows = Host.objects.filter(pk__in=_numbers(keys)).values_list("pk", "name")
    return {str(pk): Subject(name, reverse("toolchain")) for pk, name in rows}


def model_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the models that jobs are about."""
    rows = ModelArtifact.objects.filter(pk__in=_numbers(keys)).values_list("pk", "name")
    return {str(pk): Subject(name, reverse("model-detail", args=[pk])) for pk, name in rows}


def download_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the downloads that jobs are about."""
    rows = Download.objects.filter(pk__in=_numbers(keys)).values_list("pk", "name")
    return {str(pk): Subject(name, reverse("download-detail", args=[pk])) for pk, name in rows}


def folder_subjects(keys: set[str]) -> dict[str, Subject]:
    """Find the folders that jobs are about."""
    rows = ModelFolder.objects.filter(pk__in=_numbers(keys)).values_list("pk", "path")
    return {str(pk): Subject(path, reverse("model-folders")) for pk, path in rows}


def _numbers(keys: set[str]) -> list[str]:
    return [key for key in keys if key.isdigit()]
