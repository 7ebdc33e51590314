"""Addresses of the servers app."""

from django.urls import path

from servers.urls_playground import urlpatterns as playground
from servers.views import (
    compare,
    exchange,
    incidents,
    measure,
    metrics,
    overview,
    profiles,
    review,
    revisions,
    servers,
)

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("servers/", servers.servers, name="servers"),
    path("servers/<int:pk>/", servers.server_detail, name="server-detail"),
    path("servers/<int:pk>/metrics/", metrics.server_metrics, name="server-metrics"),
    path("servers/<int:pk>/question/", servers.server_question, name="server-question"),
    path("servers/<int:pk>/start/", servers.server_start, name="server-start"),
    path("servers/<int:pk>/retry/", servers.server_retry, name="server-retry"),
    path("servers/<int:pk>/stop/", servers.server_stop, name="server-stop"),
    path("servers/<int:pk>/restart/", servers.server_restart, name="server-restart"),
    path("servers/<int:pk>/pin/", servers.server_pin, name="server-pin"),
    path("servers/<int:pk>/cut/", review.server_cut, name="server-cut"),
    path("incidents/", incidents.incidents, name="incidents"),
    path("builds/compare/", compare.build_compare, name="build-compare"),
    path("profiles/", profiles.profiles, name="profiles"),
    path("profiles/new/", profiles.profile_new, name="profile-new"),
    path("profiles/preview/", profiles.profile_preview, name="profile-preview"),
    path("profiles/measure/", measure.profile_measure, name="profile-measure"),
    path("profiles/measured/<int:job>/", measure.measure_result, name="profile-measured"),
    path("profiles/import/", exchange.profile_import, name="profile-import"),
    path("profiles/<int:pk>/export/", exchange.profile_export, name="profile-export"),
    path("profiles/<int:pk>/", profiles.profile_edit, name="profile-edit"),
    path("profiles/<int:pk>/delete/", profiles.profile_delete, name="profile-delete"),
    path("profiles/<int:pk>/duplicate/", profiles.profile_duplicate, name="profile-duplicate"),
    path("profiles/<int:pk>/review/", review.profile_review, name="profile-review"),
    path("profiles/<int:pk>/revisions/", revisions.profile_revisions, name="profile-revisions"),
    path("profiles/<int:pk>/revisions/<int:number>/mark/", revisions.revision_mark, name="revision-mark"),
    path(
        "profiles/<int:pk>/revisions/<int:number>/roll-back/",
        revisions.revision_roll_back,
        name="revision-roll-back",
    ),
    *playground,
]
