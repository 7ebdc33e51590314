"""Which of the libraries' static files are collected: only what a page loads."""

from django.contrib.staticfiles.apps import StaticFilesConfig


class PanelStaticFilesConfig(StaticFilesConfig):
    """Leaves out files that no page uses; some of them name pictures that the manifest would not find."""

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        # Tabler: one style sheet (with the map it names) is used.
        "tabler.css*",
        "*.rtl.*",
        "tabler-flags*",
        "tabler-marketing*",
        "tabler-payments*",
        "tabler-props*",
        "tabler-socials*",
        "tabler-themes*",
        "tabler-vendors*",
        "tabler*.js",
        "tabler*.js.map",
        "flags",
        "payments",
        "social",
        "libs",
        "types",
        # Icons: the outline font in its usual weight.
        "tabler-icons.css",
        "tabler-icons-*",
        "*.scss",
        "*.html",
        # htmx 2 and two extensions.
        "*-4.js",
        "*-4.min.js",
        "hx-head*",
        "hx-preload*",
    ]
