"""Which proxy the environment names for a host."""

from __future__ import annotations

import urllib.request


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """Return the proxy that the environment sets for a host (NO_PROXY respected); None for a direct way."""
    known = urllib.request.getproxies()
    found = known.get(scheme) or known.get("all")
    # The list holds names, some with a port; urllib compares both forms.
    if not found or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return found if "://" in found else f"http://{found}"
