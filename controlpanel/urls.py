"""Addresses of the panel. Of allauth only what a panel without sign-up and mail needs."""

from allauth.account import views as account
from django.urls import include, path

urlpatterns = [
    path("accounts/login/", account.login, name="account_login"),
    path("accounts/logout/", account.logout, name="account_logout"),
    path("accounts/inactive/", account.account_inactive, name="account_inactive"),
    path("accounts/reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("accounts/password/change/", account.password_change, name="account_change_password"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("jobs.urls")),
    path("", include("servers.urls")),
]
