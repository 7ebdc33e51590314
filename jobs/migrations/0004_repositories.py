"""The repositories from which every panel can build at once."""

from django.db import migrations

REPOSITORIES = (
    ("llama.cpp", "https://github.com/ggml-org/llama.cpp.git"),
    ("MTP + TurboQuant (BoFan)", "https://github.com/BoFan-tunning/llama.cpp-MTP-TurboQuant.git"),
    ("ik_llama.cpp", "https://github.com/ikawrakow/ik_llama.cpp.git"),
)


def add(apps, schema_editor):
    repositories = apps.get_model("jobs", "Repository")
    for name, url in REPOSITORIES:
        repositories.objects.get_or_create(url=url, defaults={"name": name})


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_builds")]

    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
