"""Which addresses the panel connects to."""

from __future__ import annotations

import ipaddress

import pytest

from jobs.adapters.addresses import AddressRefused, Guard, is_public, origin_of, private_hosts
from jobs.adapters.proxies import proxy_for

GUARD = Guard(private_hosts(" Models.LAN:8443, 10.1.2.3 ,[fd00::1]:80,, mirror.lan. "))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2002:808:808::1", "64:ff9b::808:808"]
)
def test_public_addresses_are_told_from_private_ones(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1"),
        *("2001:0:4136:e378:8000:63bf:80ff:fffe", "64:ff9b:1::a00:1", "::7f00:1"),
    ],
)
def test_private_addresses_are_private_in_every_disguise(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/m.gguf?x=1",
        "https://8.8.8.8/m.gguf",
        "https://models.lan:8443/m.gguf",
        "http://MODELS.lan:8443/m.gguf",
        "http://10.1.2.3/m.gguf",
        "http://10.1.2.3:9000/m.gguf",
        "http://[fd00::1]/m.gguf",
        "http://mirror.lan/m.gguf",
        "http://mirror.lan./m.gguf",
    ],
)
def test_https_and_listed_hosts_are_allowed(url: str) -> None:
    GUARD.check_url(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.com/m.gguf", "Use https://"),
        ("http://models.lan/m.gguf", "PANEL_PRIVATE_HOSTS"),
        ("https://10.1.2.4/m.gguf", "10.1.2.4 is a private address"),
        ("https://[::1]/m.gguf", "::1"),
        ("https://[::ffff:10.0.0.1]/m.gguf", "private"),
        ("file:///etc/passwd", "not file:"),
        ("ftp://example.com/m.gguf", "not ftp:"),
        ("javascript:alert(1)", "not javascript:"),
        ("https:///m.gguf", "names no host"),
        ("https://", "names no host"),
        ("", "Only https://"),
        ("/m.gguf", "Only https://"),
        ("https://user:hunter2@example.com/m.gguf", "user name or a password"),
        ("https://hunter2@10.1.2.3/m.gguf", "user name or a password"),
        ("https://[::1/m.gguf", "names no host"),
        ("https://example.com:99999/m.gguf", "names no host"),
        ("https://example.com/" + "a" * 9000, "names no host"),
        ("https://example.com/\x00", "names no host"),
    ],
)
def test_other_addresses_are_refused_with_words(url: str, words: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        GUARD.check_url(url)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.code == "refused_address"


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "127.0.0.1"])
def test_a_name_is_judged_by_what_it_resolves_to(host: str) -> None:
    with pytest.raises(AddressRefused):
        Guard().addresses(host, 443)
    assert Guard(private_hosts(f"{host}:443")).addresses(host, 443)
    with pytest.raises(AddressRefused):
        Guard(private_hosts(f"{host}:444")).addresses(host, 443)


def test_an_origin_is_scheme_host_and_port() -> None:
    url = GUARD.check_url("https://Example.com./a")
    assert origin_of(url) == ("https", "example.com", 443)
    assert origin_of(GUARD.check_url("https://example.com:444/")) != origin_of(url)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without proxies."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def test_proxies_come_from_the_environment(environment: pytest.MonkeyPatch) -> None:
    assert proxy_for("https", "example.com", 443) is None
    environment.setenv("HTTPS_PROXY", "proxy.lan:3128")
    assert proxy_for("https", "example.com", 443) == "http://proxy.lan:3128"
    assert proxy_for("http", "example.com", 80) is None
    environment.setenv("ALL_PROXY", "http://all.lan:1")
    assert proxy_for("http", "example.com", 80) == "http://all.lan:1"
    environment.setenv("NO_PROXY", ".example.com,other.lan:8443")
    assert proxy_for("https", "files.example.com", 443) is None
    assert proxy_for("https", "other.lan", 8443) is None
    assert proxy_for("https", "other.lan", 443) == "http://proxy.lan:3128"
