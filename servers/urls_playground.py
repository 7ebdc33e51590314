"""Addresses of the playground, for inclusion in the servers app's own."""

from django.urls import path

from servers.views import playground, turn_stream

urlpatterns = [
    path("playground/", playground.playground, name="playground"),
    path("playground/<int:pk>/", playground.conversation, name="playground-conversation"),
    path("turns/", playground.turn_create, name="turn-create"),
    path("turns/<int:pk>/stream", turn_stream.turn_stream, name="turn-stream"),
    path("turns/<int:pk>/stop", playground.turn_stop, name="turn-stop"),
    path("turns/<int:pk>/continue", playground.turn_continue, name="turn-continue"),
    path("turns/<int:pk>/regenerate", playground.turn_regenerate, name="turn-regenerate"),
]
