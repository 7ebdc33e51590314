"""Addresses of the playground, for inclusion in the servers app's own."""

from django.urls import path

from servers.views import conversations, playground, sampling, turn_stream

urlpatterns = [
    path("playground/", playground.playground, name="playground"),
    path("playground/<int:pk>/", playground.conversation, name="playground-conversation"),
    path("playground/conversations/", conversations.conversation_list, name="conversation-list"),
    path("playground/sampling/", sampling.sampling, name="sampling"),
    path("playground/<int:pk>/rename", conversations.conversation_rename, name="conversation-rename"),
    path("playground/<int:pk>/delete", conversations.conversation_delete, name="conversation-delete"),
    path("playground/<int:pk>/sampling", sampling.conversation_sampling, name="conversation-sampling"),
    path("turns/", playground.turn_create, name="turn-create"),
    path("turns/<int:pk>/stream", turn_stream.turn_stream, name="turn-stream"),
    path("turns/<int:pk>/stop", playground.turn_stop, name="turn-stop"),
    path("turns/<int:pk>/continue", playground.turn_continue, name="turn-continue"),
    path("turns/<int:pk>/edit", playground.turn_edit, name="turn-edit"),
    path("turns/<int:pk>/regenerate", playground.turn_regenerate, name="turn-regenerate"),
]
