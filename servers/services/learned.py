"""What the starts of a build have taught about the memory of computations and of the driver."""

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.memory_learn import Learned
from jobs.models import Build
from jobs.services.fits import Cards
from servers.models import StartReading

LOOKED_AT = 20  # newest readings that a correction is put together from


def learned_for(build: Build, architecture: str | None, backend: str) -> Learned | None:
    """Return what starts of the very same binary taught, the newest first, None when there was none."""
    if not build.fingerprint or not architecture:
        return None
    rows = StartReading.objects.filter(
        build=build, fingerprint=build.fingerprint, architecture=architecture[:60], backend=backend
    ).exclude(learned={})
    found: Learned | None = None
    for data in rows.values_list("learned", flat=True)[:LOOKED_AT]:
        older = Learned.from_dict(data)
        found = found.filled(older) if found and older else found or older
    return found


def backend_of(caps: Capabilities, cards: Cards) -> str:
    """Return the kind of device that a build will use, as a reading names it."""
    if not cards.devices:
        return "CPU"
    named = [device.name.rstrip("0123456789") for device in caps.devices]
    return next((name for name in named if name), "CUDA")
