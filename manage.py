#!/usr/bin/env python
"""Django's command-line entry point of the control panel."""

import os
import sys


def main() -> None:
    """Run one management command with the panel's settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlpanel.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
