"""Rows of the servers app."""

from servers.models.conversation import Conversation, Turn
from servers.models.incident import Incident
from servers.models.instance import Instance
from servers.models.profile import ServerProfile
from servers.models.reading import StartReading
from servers.models.revision import ProfileRevision

__all__ = ["Conversation", "Incident", "Instance", "ProfileRevision", "ServerProfile", "StartReading", "Turn"]
