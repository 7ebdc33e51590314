"""Rows of the servers app."""

from servers.models.conversation import Conversation, Turn
from servers.models.instance import Instance
from servers.models.profile import ServerProfile

__all__ = ["Conversation", "Instance", "ServerProfile", "Turn"]
