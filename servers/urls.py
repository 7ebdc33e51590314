"""Addresses of the servers app."""

from django.urls import path

from servers.urls_playground import urlpatterns as playground
from servers.views import compare, overview, profiles, servers

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("servers/", servers.servers, name="servers"),
    path("servers/<int:pk>/", servers.server_detail, name="server-detail"),
    path("servers/<int:pk>/question/", servers.server_question, name="server-question"),
    path("servers/<int:pk>/start/", servers.server_start, name="server-start"),
    path("servers/<int:pk>/stop/", servers.server_stop, name="server-stop"),
    path("servers/<int:pk>/restart/", servers.server_restart, name="server-restart"),
    path("builds/compare/", compare.build_compare, name="build-compare"),
    path("profiles/", profiles.profiles, name="profiles"),
    path("profiles/new/", profiles.profile_new, name="profile-new"),
    path("profiles/preview/", profiles.profile_preview, name="profile-preview"),
    path("profiles/<int:pk>/", profiles.profile_edit, name="profile-edit"),
    path("profiles/<int:pk>/delete/", profiles.profile_delete, name="profile-delete"),
    path("profiles/<int:pk>/duplicate/", profiles.profile_duplicate, name="profile-duplicate"),
    *playground,
]
