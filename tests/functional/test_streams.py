"""Events reach the stream, and a missing Redis costs a page one short wait at most."""

import time

import pytest
import redis

from controlpanel.lib import streams


def test_an_event_names_kind_and_row(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_next_try", 0.0)
    streams.publish("build", 7)
    [(_id, fields)] = redis_server.xrange(streams.EVENTS)
    assert fields == {b"kind": b"build", b"pk": b"7"}


def test_after_a_failure_nothing_is_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    class Away:
        def xadd(self, *_args: object, **_options: object) -> None:
            tries.append(time.monotonic())
            raise redis.ConnectionError("away")

    monkeypatch.setattr(streams, "_next_try", 0.0)
    monkeypatch.setattr(streams, "sync_client", Away)
    for _ in range(20):
        streams.publish("build", 1)
    assert len(tries) == 1
    monkeypatch.setattr(streams, "_next_try", 0.0)
    streams.publish("build", 1)
    assert len(tries) == 2
