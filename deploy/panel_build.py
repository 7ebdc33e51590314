"""Build a folder of sources with the panel's own build code, in this process and on a data folder of its own.

usage: panel_build.py DATA INPUTS

INPUTS are those of a build as JSON; DATA/result names the installed folder once it is there. A build that was
cut off goes on where it was; one that has failed is made anew.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.domain.buildspec import BuildInputs
    from jobs.models import Build

ROOT = Path(__file__).resolve().parents[1]
NAME = "real"
RESULT = "result"


def prepare(data: Path) -> None:
    """Set Django up on the data folder and bring its database up to date."""
    for name in [
        name for name in os.environ if name.startswith(("PANEL_", "DJANGO_", "DATABASE_", "REDIS_"))
    ]:
        del os.environ[name]
    os.environ |= {"PANEL_DATA": str(data), "DJANGO_SETTINGS_MODULE": "controlpanel.settings"}
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def build(inputs: BuildInputs) -> Build:
    """Return the build of the inputs as it ended."""
    from jobs.models import Build, BuildConfig, Repository
    from jobs.services import building, jobs
    from jobs.services.audit import Actor
    from jobs.services.hosts import local_host

    repository, _made = Repository.objects.get_or_create(
        url=inputs.repository, defaults={"name": NAME, "kind": Repository.Kind.LOCAL}
    )
    fields = {key: value for key, value in inputs.to_dict().items() if key not in {"repository", "local"}}
    config, _made = BuildConfig.objects.update_or_create(
        name=NAME, defaults={"host": local_host(), **fields, "repository": repository}
    )
    found = Build.objects.filter(config=config).order_by("-pk").first()
    if found is None or found.state not in (*Build.WORKING, Build.State.READY):
        found = building.start_build(Actor.cli(), config)
    job = building.newest_job(found)
    if job is not None:
        jobs.execute(job.pk)
    found.refresh_from_db()
    return found


def explain(found: Build) -> str:
    """Return what a failed build says, after the end of its last log."""
    from jobs.adapters import runlog
    from jobs.models import Run

    run = Run.objects.filter(subject_kind="build", subject_id=str(found.pk)).order_by("created_at").last()
    lines = runlog.last_lines(run.pk)[-30:] if run else []
    return "\n".join([*lines, "", found.error_text])


def main(arguments: list[str]) -> int:
    """Build; 1 with words on stderr when that is not possible."""
    data = Path(arguments[0])
    prepare(data)
    from controlpanel.lib.errors import Refused
    from jobs.domain.buildspec import BuildInputs

    try:
        found = build(BuildInputs.from_dict(json.loads(arguments[1])))
    except Refused as reason:
        print(reason, file=sys.stderr)
        return 1
    if found.state != found.State.READY:
        print(explain(found), file=sys.stderr)
        return 1
    (data / RESULT).write_text(str(Path(found.path).parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
