"""Figures: each script measures pairs in one run and prints medians and ratios as JSON."""

import os

import django

# The scripts use the tests' helpers, some of which need models.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()
