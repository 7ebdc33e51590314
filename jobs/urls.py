"""Addresses of the jobs app."""

from django.urls import path

from jobs.views import activity, audit, builds, gpus, logs, models

urlpatterns = [
    path("builds/", builds.builds, name="builds"),
    path("builds/register/", builds.build_register, name="build-register"),
    path("builds/<int:pk>/", builds.build_detail, name="build-detail"),
    path("builds/<int:pk>/probe/", builds.build_probe, name="build-probe"),
    path("builds/<int:pk>/delete/", builds.build_delete, name="build-delete"),
    path("models/", models.models, name="models"),
    path("models/register/", models.model_register, name="model-register"),
    path("models/<int:pk>/", models.model_detail, name="model-detail"),
    path("models/<int:pk>/refresh/", models.model_refresh, name="model-refresh"),
    path("models/<int:pk>/delete/", models.model_delete, name="model-delete"),
    path("runs/<str:run_id>/log/", logs.run_log, name="run-log"),
    path("runs/<str:run_id>/log/range/", logs.log_range, name="log-range"),
    path("runs/<str:run_id>/log/search/", logs.log_search, name="log-search"),
    path("runs/<str:run_id>/log/errors/", logs.log_errors, name="log-errors"),
    path("runs/<str:run_id>/log/line/", logs.log_line, name="log-line"),
    path("runs/<str:run_id>/log/download/", logs.log_download, name="log-download"),
    path("gpus/", gpus.gpus, name="gpus"),
    path("activity/", activity.activity, name="activity"),
    path("activity/<int:pk>/cancel/", activity.job_cancel, name="job-cancel"),
    path("audit/", audit.audit, name="audit"),
]
