"""The three roles as groups."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ROLES = ("viewer", "operator", "admin")


def make_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Create the groups that are missing."""
    group = apps.get_model("auth", "Group")
    for name in ROLES:
        group.objects.get_or_create(name=name)


class Migration(migrations.Migration):
    """Creates the groups; undoing it leaves them, as accounts may be in them."""

    dependencies = [
        ("jobs", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
