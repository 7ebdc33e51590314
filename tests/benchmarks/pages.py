"""Pages with 1,000 rows of each kind, over HTTP from a whole panel. Goal: p50 below 50 ms."""

import tempfile
from pathlib import Path

from tests.benchmarks.figures import answer, median, percentile, timed
from tests.e2e.whole import Panel

ROWS = 1000
ROUNDS = 30
PAGES = ("/", "/servers/", "/profiles/", "/models/", "/builds/", "/activity/", "/audit/", "/playground/")
SEED = f"""
from django.contrib.auth.models import User
from jobs.models import AuditEntry, Build, Job, ModelArtifact
from jobs.services.hosts import local_host
from servers.models import Conversation, Instance, ServerProfile
host, user, rows = local_host(), User.objects.get(), range({ROWS})
builds = Build.objects.bulk_create(
    Build(host=host, name=f"b {{n}}", path=f"/b/{{n}}", state="ready") for n in rows
)
models = ModelArtifact.objects.bulk_create(
    ModelArtifact(host=host, name=f"model {{n}}", path=f"/m/{{n}}", architecture="qwen3") for n in rows
)
profiles = ServerProfile.objects.bulk_create(
    ServerProfile(name=f"p {{n}}", slug=f"p-{{n}}", build=builds[n], model=models[n]) for n in rows
)
Instance.objects.bulk_create(Instance(profile=profile) for profile in profiles)
Job.objects.bulk_create(
    Job(host=host, kind="build.probe", state="succeeded", subject_kind="build", subject_id=str(builds[n].pk))
    for n in rows
)
AuditEntry.objects.bulk_create(
    AuditEntry(source="cli", action="build.probe", object_kind="build", object_id="1", object_label="b")
    for n in rows
)
Conversation.objects.bulk_create(Conversation(user=user, title=f"talk {{n}}") for n in rows)
"""


def main() -> None:
    """Seed, warm up, measure."""
    with tempfile.TemporaryDirectory() as folder, Panel(Path(folder) / "data") as panel:
        panel.start()
        panel.shell(SEED)
        figures = {}
        with panel.client() as client:
            for page in PAGES:
                assert client.get(page).status_code == 200, page
                times = [timed(lambda page=page: client.get(page)) * 1000 for _ in range(ROUNDS)]
                figures[page] = {"p50_ms": median(times), "p95_ms": percentile(times, 0.95)}
    answer(rows=ROWS, pages=figures)


if __name__ == "__main__":
    main()
