"""Splitting pasted shell text into commands: quotes, joined lines, comments, redirections, variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from controlpanel.lib.text import N_, Worded

MAX_BYTES = 64 * 1024
MAX_WORDS = 1_000

_JOINED = re.compile(r"[\\^`][ \t]*\r?\n")
_VARIABLE = re.compile(r"\$(?:\{(\w{1,100})\}|([A-Za-z_]\w{0,99}))")
_REDIRECTION = re.compile(r"&?[<>]+(?:&-?|\|)?")
_OPEN = re.compile(r"\$(?:\{|\(|[A-Za-z_])|`")


@dataclass
class Command:
    """One command of the text; `redirected` are the operators with their targets, which are no words."""

    words: list[str] = field(default_factory=list)
    redirected: list[str] = field(default_factory=list)
    own_line: bool = True


def checked(text: str) -> str:
    """Return the text; Worded when it is empty, too long or holds what no command can hold."""
    if not text.strip():
        raise Worded(N_("There is no command: paste the one that starts llama-server."))
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise Worded(N_("The text is longer than %(limit)s KiB: paste only the command."), limit=64)
    if "\x00" in text:
        raise Worded(N_("The text holds a NUL character: remove it."))
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise Worded(N_("The text holds characters that are no valid text: paste it again."))
    return text


def split_shell(text: str) -> list[Command]:
    """Return the commands of the text in order; Worded for an open quote or too many words."""
    joined: list[Command] = []
    for command in _Splitter(_JOINED.sub(" ", text)).run():
        goes_on = command.own_line and command.words and command.words[0].startswith("-")
        if goes_on and joined:
            joined[-1].words += command.words
            joined[-1].redirected += command.redirected
        elif command.words or command.redirected:
            joined.append(command)
    return joined


def split_words(text: str) -> list[str]:
    """Return the words of a text that no shell reads: only spaces, quotes and backslashes count."""
    return [word for command in _Splitter(text, plain=True).run() for word in command.words]


class Variables:
    """Variables of the text; what filling them in adds is bounded for all words together."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._left = 4 * MAX_BYTES

    def fill(self, word: str) -> str:
        """Return the word with the known variables filled in once; Worded when it gets too long."""
        if "$" not in word or not self.values:
            return word
        parts: list[str] = []
        end = 0
        for match in _VARIABLE.finditer(word):
            value = self.values.get(match[1] or match[2], match[0])
            self._left -= len(value)
            if self._left < 0:
                raise Worded(N_("The variables make the command too long: paste it with their values."))
            parts += [word[end : match.start()], value]
            end = match.end()
        return "".join([*parts, word[end:]])


def unresolved(word: str) -> bool:
    """Tell whether a word holds a variable or a command whose outcome is not known."""
    return _OPEN.search(word) is not None


class _Splitter:
    """Reads the text once, character by character."""

    def __init__(self, text: str, plain: bool = False) -> None:
        self.text = text
        self.plain = plain
        self.pos = 0
        self.word: list[str] | None = None
        self.target: str | None = None
        self.words = 0
        self.commands = [Command()]

    def run(self) -> list[Command]:
        """Return all commands, empty ones too."""
        while self.pos < len(self.text):
            self._step(self.text[self.pos])
        self._end_word()
        return self.commands

    def _step(self, char: str) -> None:
        if char in " \t\r\v\f" or (self.plain and char == "\n"):
            self._end_word()
            self.pos += 1
        elif self.plain:
            self._add(char)
        elif char == "#" and self.word is None:
            end = self.text.find("\n", self.pos)
            self.pos = len(self.text) if end < 0 else end
        elif char in "<>" or self.text.startswith("&>", self.pos):
            self._redirect()
        elif char in "\n;&|()":
            self._end_word()
            self.target = None
            self.pos += 1
            if self.commands[-1].words or self.commands[-1].redirected:
                self.commands.append(Command())
            self.commands[-1].own_line = char == "\n"
        else:
            self._add(char)

    def _add(self, char: str) -> None:
        if self.word is None:
            self.word = []
        self._character(char, self.word)

    def _character(self, char: str, word: list[str]) -> None:
        if char == "\\":
            if self.pos + 1 == len(self.text):
                raise Worded(N_("The text ends with a lone backslash: remove it."))
            word.append(self.text[self.pos + 1])
            self.pos += 2
        elif char == "'":
            end = self._find("'", self.pos + 1)
            word.append(self.text[self.pos + 1 : end])
            self.pos = end + 1
        elif char == '"':
            self._double(word)
        elif not self.plain and (char == "`" or self.text.startswith("$(", self.pos)):
            self._substitution(word)
        else:
            word.append(char)
            self.pos += 1

    def _find(self, mark: str, start: int) -> int:
        end = self.text.find(mark, start)
        if end < 0:
            raise Worded(N_("A quotation mark is not closed in the text."))
        return end

    def _double(self, word: list[str]) -> None:
        pos = self.pos + 1
        while True:
            char = self.text[pos : pos + 1]
            if not char:
                raise Worded(N_("A quotation mark is not closed in the text."))
            if char == '"':
                break
            if char == "\\" and self.text[pos + 1 : pos + 2] in ('"', "\\", "$", "`"):
                pos += 1
            word.append(self.text[pos : pos + 1])
            pos += 1
        self.pos = pos + 1

    def _substitution(self, word: list[str]) -> None:
        """Take $(command) or `command` as it stands."""
        start = self.pos
        if self.text[start] == "`":
            end = self._find("`", start + 1) + 1
        else:
            depth, end = 0, start + 1
            while end < len(self.text):
                depth += {"(": 1, ")": -1}.get(self.text[end], 0)
                end += 1
                if depth == 0:
                    break
            if depth:
                raise Worded(N_("A bracket is not closed in the text."))
        word.append(self.text[start:end])
        self.pos = end

    def _redirect(self) -> None:
        number = ""
        if self.word is not None and all(part.isdigit() for part in self.word):
            number, self.word = "".join(self.word), None
        self._end_word()
        match = _REDIRECTION.match(self.text, self.pos)
        operator = match[0] if match else self.text[self.pos]
        self.pos += len(operator)
        self.target = number + operator

    def _end_word(self) -> None:
        if self.word is None:
            return
        word, self.word = "".join(self.word), None
        self.words += 1
        if self.words > MAX_WORDS:
            text = N_("The text has more than %(limit)s words: paste only the command.")
            raise Worded(text, limit=MAX_WORDS)
        if self.target is not None:
            self.commands[-1].redirected.append(f"{self.target} {word}")
            self.target = None
        else:
            self.commands[-1].words.append(word)
