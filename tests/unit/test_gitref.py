"""Addresses and names of git: what reaches git, and what a person is told of the rest."""

from __future__ import annotations

import subprocess

import pytest

from jobs.domain.gitref import MAX_REF, MAX_URL, check_ref, check_url, is_commit, shown_url


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/ggml-org/llama.cpp.git",
        "https://git.example.org:8443/group/sub/llama.cpp",
        "https://example.org/~me/llama.git",
        "ssh://git@github.com/ggml-org/llama.cpp.git",
        "ssh://git.example.org:2222/llama.cpp",
        "git@github.com:ikawrakow/ik_llama.cpp.git",
        "me@host:/srv/git/llama.git",
        "https://example.org/with@sign/llama.git",
    ],
)
def test_addresses_over_https_and_ssh_are_taken(url: str) -> None:
    assert check_url(url) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "Enter the address"),
        ("http://example.org/llama.git", "not over http"),
        ("git://example.org/llama.git", "not over git"),
        ("file:///etc", "not over file"),
        ("FILE:///etc", "not over file"),
        ("ext::sh -c id", "space"),
        ("ext::sh", "not over ext"),
        ("https::ssh://example.org/a", "not over https"),
        ("ftp://example.org/a", "not over ftp"),
        ("https://me:secret@example.org/llama.git", "contains a login"),
        ("https://token@example.org/llama.git", "contains a login"),
        ("ssh://me:secret@example.org/llama.git", "contains a login"),
        ("--upload-pack=id", "no address"),
        ("-oProxyCommand=id@host:path", "no address"),
        ("ssh://-oProxyCommand=id/path", "no address"),
        ("git@-oProxyCommand=id:path", "no address"),
        ("git@host:-path", "no address"),
        ("/srv/git/llama.git", "no address"),
        ("../llama.git", "no address"),
        ("host:path", "no address"),
        ("https://example.org", "no address"),
        ("https://example.org/", "no address"),
        ("https://example.org/a\nb", "control character"),
        ("https://example.org/a\x00b", "control character"),
        ("https://example.org/a b", "space"),
        ("https://example.org/a?token=1", "no address"),
        ("https://exämple.org/a", "no address"),
        ("https://example.org/" + "a" * MAX_URL, "longer than 2048"),
    ],
)
def test_other_addresses_are_refused_with_words(url: str, words: str) -> None:
    message = check_url(url)
    assert message is not None
    assert words in str(message)
    assert "secret" not in str(message)


GOOD_REFS = [
    "",
    "master",
    "feature/mtp",
    "b11434",
    "v1.0-rc.1",
    "67f38aa53a35dba17e82a489322a16df2100ce6f",
    "pull/123/head",
    "a@b",
    "größe",
    "#1",
]
BAD_REFS = [
    "-b",
    "--upload-pack=id",
    "a..b",
    "a@{1}",
    "a b",
    "a\tb",
    "a\nb",
    "a\x7fb",
    "a~1",
    "a^",
    "a:b",
    "a?",
    "a*",
    "a[b",
    "a\\b",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.lock",
    "a.lock/b",
    "a.",
    "@",
    "a" * (MAX_REF + 1),
]


@pytest.mark.parametrize("ref", GOOD_REFS)
def test_names_that_git_knows_are_taken(ref: str) -> None:
    assert check_ref(ref) is None


@pytest.mark.parametrize("ref", BAD_REFS)
def test_names_that_git_refuses_are_refused_before(ref: str) -> None:
    message = check_ref(ref)
    assert message is not None
    assert str(message)


# To git, "@" is another word for HEAD, so it lets it pass; a branch of that name would never be meant.
ASKED = [ref for ref in [*GOOD_REFS, *BAD_REFS] if ref not in ("", "@") and len(ref) <= MAX_REF]


@pytest.mark.parametrize("ref", ASKED)
def test_git_itself_agrees(ref: str) -> None:
    done = subprocess.run(
        ["git", "check-ref-format", "--branch", ref], capture_output=True, check=False, cwd="/"
    )
    assert (done.returncode == 0) == (check_ref(ref) is None)


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("67f38aa", True),
        ("67F38AA53A35", True),
        ("0" * 40, True),
        ("0" * 41, False),
        ("67f38a", False),
        ("master", False),
        ("", False),
    ],
)
def test_a_commit_has_7_to_40_hexadecimal_digits(ref: str, expected: bool) -> None:
    assert is_commit(ref) is expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@example.org/a.git", "https://example.org/a.git"),
        ("https://token@example.org/a.git", "https://example.org/a.git"),
        ("ssh://me:secret@example.org/a.git", "ssh://example.org/a.git"),
        ("ssh://git@example.org/a.git", "ssh://git@example.org/a.git"),
        ("git@example.org:a.git", "git@example.org:a.git"),
        ("/srv/llama@work", "/srv/llama@work"),
    ],
)
def test_an_address_is_shown_without_its_login(url: str, shown: str) -> None:
    assert shown_url(url) == shown
