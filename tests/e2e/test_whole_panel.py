"""The whole panel with the demo's real engine: start, serve, survive kill -9 of every process, stop."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.runtime.procs import alive, proc_of, signal_proc
from tests.e2e.whole import Panel
from tests.models import solid_png
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panel]:
    """A demo panel with SmolLM2 ready, shared by the tests of this module."""
    with Panel(tmp_path_factory.mktemp("panel") / "data") as running:
        running.start("--demo")
        yield running


def answers(panel: Panel) -> bool:
    """True when the running server answers a question, asked without the panel's web process."""
    found = panel.manage("ask", "smollm2", "Say hello.", "--max-tokens", "8", check=False)
    return bool(found.get("answer"))


def test_demo_starts_a_real_server_that_answers(panel: Panel) -> None:
    row = panel.server("smollm2")
    assert row["observed"] == "ready" and row["desired"] == "running"
    assert row["facts"] == {"mtp": False, "vision": False, "n_ctx": 2048}
    question = "What is the capital of France? Answer in one sentence."

    def found() -> Any:
        return panel.manage("ask", "smollm2", question, "--max-tokens", "32")

    # A small model at its usual temperature now and then talks about something else.
    answers = (found() for _ in range(6))
    right = next((answer for answer in answers if "Paris" in answer["answer"]), None)
    assert right is not None
    assert right["timings"]["predicted_per_second"] > 0


def test_tiny_model_reports_mtp_and_vision_and_names_the_colour(panel: Panel, tmp_path: Path) -> None:
    row = panel.manage("start", "tiny-mtp-and-vision")
    assert row["facts"] == {"mtp": True, "vision": True, "n_ctx": 4096}
    text = panel.manage("ask", "tiny-mtp-and-vision", "hi")
    assert (text["timings"]["draft_n"], text["timings"]["draft_n_accepted"]) == (78, 39)
    picture = tmp_path / "red.png"
    picture.write_bytes(solid_png((255, 0, 0)))
    seen = panel.manage("ask", "tiny-mtp-and-vision", "Which colour?", "--image", str(picture))
    assert seen["answer"].startswith("Red is the main color")
    assert panel.manage("stop", "tiny-mtp-and-vision")["observed"] == "stopped"


def test_starting_twice_is_refused_in_words(panel: Panel) -> None:
    found = panel.manage("start", "smollm2", check=False)
    assert set(found) == {"error", "detail"} and "ready" in found["detail"]


def test_an_unknown_profile_is_refused_with_the_names_there_are(panel: Panel) -> None:
    found = panel.manage("stop", "nothing", check=False)
    assert found["error"] == "no_such_profile" and "smollm2" in found["detail"]


@pytest.mark.parametrize("role", ["web", "worker-control", "agent", "valkey"])
def test_kill_9_of_a_process_loses_no_server(panel: Panel, role: str) -> None:
    before = panel.server("smollm2")
    panel.kill(role)
    assert answers(panel)
    after = panel.server("smollm2")
    assert (after["pid"], after["observed"]) == (before["pid"], "ready")
    # The panel works again as a whole: a start and a stop go through queue, worker, agent and log.
    panel.manage("start", "tiny-mtp-and-vision")
    assert panel.manage("stop", "tiny-mtp-and-vision")["observed"] == "stopped"


def test_kill_9_of_the_shim_leaves_the_server_and_the_agent_watches_it(panel: Panel) -> None:
    row = panel.manage("start", "tiny-mtp-and-vision")
    shim = proc_of(int(panel.value("tiny-mtp-and-vision", "runs.inspect(instance.run_id).shim.pid")))
    assert shim is not None
    signal_proc(shim, signal.SIGKILL)
    wait_for(lambda: not alive(shim), 10, "the shim's end")
    assert panel.manage("ask", "tiny-mtp-and-vision", "hi")["answer"].startswith("Hello!")
    assert panel.server("tiny-mtp-and-vision")["pid"] == row["pid"]
    assert panel.manage("stop", "tiny-mtp-and-vision")["observed"] == "stopped"
    child = proc_of(row["pid"])
    assert child is None or not alive(child)


def test_a_server_killed_from_outside_says_its_signal_and_is_started_again(panel: Panel) -> None:
    row = panel.manage("start", "tiny-mtp-and-vision")
    child = proc_of(row["pid"])
    assert child is not None
    signal_proc(child, signal.SIGKILL)

    def again() -> bool:
        now = panel.server("tiny-mtp-and-vision")
        return now["observed"] == "ready" and now["pid"] != row["pid"]

    wait_for(again, 60, "the server to be ready again")
    assert "signal 9" in panel.value("tiny-mtp-and-vision", "instance.profile.incidents.get().title_text")
    panel.manage("stop", "tiny-mtp-and-vision")


def test_two_people_pressing_start_get_one_instance(panel: Panel) -> None:
    with panel.client() as first, panel.client() as second:
        path = panel.value("tiny-mtp-and-vision", "reverse('server-start', args=[instance.profile_id])")
        assert {first.post(path).status_code, second.post(path).status_code} <= {200, 204, 409}
    wait_for(lambda: panel.server("tiny-mtp-and-vision")["observed"] == "ready", 60, "the ready server")
    runs = panel.value("smollm2", "Run.objects.filter(state__in=Run.ACTIVE).count()")
    assert runs == "2"
    panel.manage("stop", "tiny-mtp-and-vision")


def test_pages_stay_fast_and_say_so_while_the_broker_is_down(panel: Panel) -> None:
    for proc in panel.processes("valkey"):
        signal_proc(proc, signal.SIGSTOP)
    try:
        with panel.client() as client:
            began = time.monotonic()
            assert client.get("/servers/").status_code == 200
            assert time.monotonic() - began < 10
            path = panel.value("tiny-mtp-and-vision", "reverse('server-start', args=[instance.profile_id])")
            client.post(path)
            wait_for(
                lambda: "waiting for the queue" in client.get("/servers/").text.lower(), 60, "the notice"
            )
    finally:
        for proc in panel.processes("valkey"):
            signal_proc(proc, signal.SIGCONT)
    wait_for(lambda: panel.server("tiny-mtp-and-vision")["observed"] == "ready", 90, "the late start")
    panel.manage("stop", "tiny-mtp-and-vision")


def test_ctrl_c_leaves_the_server_and_the_next_start_finds_it(panel: Panel) -> None:
    before = panel.server("smollm2")
    seconds = panel.interrupt()
    assert seconds < 30
    assert "1 llama-server goes on running" in panel.said()
    assert not panel.processes("web") and not panel.processes("valkey")
    server = proc_of(before["pid"])
    assert server is not None and alive(server)
    panel.start()
    assert panel.server("smollm2")["pid"] == before["pid"]
    assert answers(panel)


def test_kill_9_of_supervisord_is_healed_by_the_next_start(panel: Panel) -> None:
    before = panel.server("smollm2")
    assert panel.process is not None
    supervisord = panel.supervisord()
    panel.process.kill()
    panel.process.wait()
    signal_proc(supervisord, signal.SIGKILL)
    old_web = panel.processes("web")
    assert old_web, "the web process outlives a killed supervisord"
    panel.start()
    assert not any(map(alive, old_web))
    assert panel.server("smollm2")["pid"] == before["pid"]
    assert answers(panel)


def test_a_second_panel_on_the_same_data_is_refused(panel: Panel) -> None:
    other = Panel(panel.data)
    other.output = panel.data / "second.out"
    with pytest.raises(AssertionError, match="already"):
        other.start()
    assert answers(panel)


def test_down_stops_servers_and_panel(panel: Panel) -> None:
    pid = panel.server("smollm2")["pid"]
    panel.manage("servers")
    panel.close()
    server = proc_of(pid)
    assert server is None or not alive(server)
    assert not panel.processes("web")
