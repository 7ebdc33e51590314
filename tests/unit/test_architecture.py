"""The import rules of the design, held by walking every module's imports."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("controlpanel", "jobs", "servers")
LIMIT = 400
STATE_COLUMNS = {"state", "observed", "desired"}


def modules() -> list[Path]:
    """All Python files of the three apps without migrations."""
    return [
        path for top in OURS for path in sorted((ROOT / top).rglob("*.py")) if "migrations" not in path.parts
    ]


def dotted(path: Path) -> str:
    """The module name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(name: str, *packages: str) -> bool:
    """True when the module lies in one of the packages."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def wrong(path: Path, name: str) -> str | None:
    """Why this import breaks a rule, or None."""
    module = dotted(path)
    top = name.split(".")[0]
    pure = is_in(module, "controlpanel.llamacpp", "jobs.domain", "servers.domain")
    if is_in(module, "jobs") and is_in(name, "servers"):
        return "jobs never imports servers"
    free = is_in(module, "controlpanel") and not is_in(module, "controlpanel.lib", "controlpanel.llamacpp")
    if is_in(name, "controlpanel") and not free:
        allowed = ("controlpanel.lib", "controlpanel.llamacpp")
        if name not in {"controlpanel"} and not is_in(name, *allowed):
            return "only controlpanel.lib and controlpanel.llamacpp may be imported from outside"
    if pure and top not in sys.stdlib_module_names:
        own = ("controlpanel.llamacpp", "controlpanel.lib.text", "jobs.domain", "servers.domain")
        if not is_in(name, *own) and name not in {"controlpanel", "controlpanel.lib"}:
            return "llamacpp and domain use the standard library only"
    if is_in(module, "jobs.runtime.shim") and top not in sys.stdlib_module_names:
        return "the shim uses the standard library only"
    if is_in(module, "controlpanel.lib") and is_in(name, "jobs", "servers"):
        return "lib imports no app"
    return None


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_a_module_imports_only_what_the_design_allows(path: Path) -> None:
    found = {name: reason for name in imports(path) if (reason := wrong(path, name))}
    assert not found


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_only_adapters_and_runtime_start_processes_or_speak_to_the_network(path: Path) -> None:
    module = dotted(path)
    if is_in(module, "jobs.adapters", "jobs.runtime", "controlpanel.foreground", "controlpanel.demo"):
        return
    found = {name for name in imports(path) if is_in(name, "subprocess", "pynvml", "requests")}
    assert not found


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_only_services_change_a_state_column(path: Path) -> None:
    if "services" in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            changed = {keyword.arg for keyword in node.keywords} & STATE_COLUMNS
            assert not changed, f"{dotted(path)}:{node.lineno} updates {changed}"


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_no_module_is_longer_than_the_ceiling(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LIMIT


def test_only_hostlink_and_host_code_open_run_logs() -> None:
    host_code = ("jobs.adapters", "jobs.runtime", "jobs.services.runs", "servers.services.polls")
    found = [
        dotted(path)
        for path in modules()
        if "log_path(" in path.read_text(encoding="utf-8") and not is_in(dotted(path), *host_code)
    ]
    assert not found


def test_the_rules_notice_a_forbidden_import() -> None:
    path = ROOT / "jobs" / "services" / "jobs.py"
    assert wrong(path, "servers.models") == "jobs never imports servers"
    assert wrong(ROOT / "controlpanel" / "llamacpp" / "gguf.py", "django.conf")
    assert wrong(ROOT / "jobs" / "runtime" / "shim.py", "psutil")
    assert wrong(path, "controlpanel.lib.redis") is None
