"""Tasks whose answers take ``k`` steps that build on each other.

Each makes a question with its answer, and has a solver that reads the question alone.
"""

import random
from abc import ABC, abstractmethod
from string import ascii_letters
from typing import ClassVar, Literal, Self, final

from pydantic import Field, field_validator, model_validator

from depthbench.config import Frozen, Seed
from depthbench.errors import DepthbenchError

TaskName = Literal["khop", "arithmetic", "brackets", "pointers"]
MARK = "="
"""Between question and answer, and nowhere else."""
LEAST = 16
"""Different questions of a ``k``, fewer of which test nothing."""
PAD = "."
"""In front of questions that are shorter than the longest."""
SIZES: dict[TaskName, tuple[int, int, int]] = {
    "khop": (3, len(ascii_letters), 8),
    "arithmetic": (2, 10, 7),
    "brackets": (1, 4, 3),
    "pointers": (3, len(ascii_letters), 8),
}
"""Least, most and usual size of each task."""


class TaskConfig(Frozen):
    """One task at several difficulties."""

    task: TaskName
    """Which one: docs/eval.md."""
    ks: tuple[int, ...] = Field(default=(1, 2, 3, 4), min_length=1)
    """Steps from question to answer."""
    size: int | None = None
    """Letters of `khop` and `pointers`, modulus of `arithmetic`, kinds of `brackets`; None = 8, 7
    and 3."""
    train: int = Field(default=16384, ge=1)
    """Questions of each ``k`` to train on."""
    test: int = Field(default=512, ge=1)
    """Others of each ``k`` to test with, at most."""
    seed: Seed = 0
    """Of the questions."""

    @field_validator("ks")
    @classmethod
    def _within(cls, ks: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= k <= 64 for k in ks) or len(set(ks)) < len(ks):
            raise ValueError("each k is from 1 to 64 and named once: write 1,2,3,4")
        return tuple(sorted(ks))

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        least, most, _ = SIZES[self.task]
        if self.size is not None and not least <= self.size <= most:
            raise ValueError(f"size = {self.size}: {self.task} takes {least} to {most}")
        size = self.size or SIZES[self.task][2]
        if self.task in ("khop", "pointers") and self.ks[-1] >= size:
            raise ValueError(
                f"k = {self.ks[-1]} goes around all {size} letters, back to the start or beyond. "
                "Use a larger --size"
            )
        return self


class Task(ABC):
    """Questions and answers in printable ASCII."""

    name: ClassVar[TaskName]

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def make(self, k: int, draw: random.Random) -> tuple[str, str]:
        """A question of ``k`` steps, and its answer."""

    @abstractmethod
    def solve(self, question: str) -> str:
        """The answer, from the question alone."""

    @abstractmethod
    def longest(self, k: int) -> int:
        """Characters of the longest question of ``k`` steps and its answer."""


@final
class KHop(Task):
    """``dbacbd…2a``: pairs in random order, one out of every letter; from ``a``, two hops."""

    name = "khop"

    def make(self, k: int, draw: random.Random) -> tuple[str, str]:
        letters = ascii_letters[: self.size]
        to = _cycle(letters, draw)
        start = draw.choice(letters)
        pairs = "".join(key + to[key] for key in _shuffled(letters, draw))
        return f"{pairs}{k}{start}", _follow(to, start, k)

    def solve(self, question: str) -> str:
        head, steps, start = _parts(question)
        pairs = dict(zip(head[::2], head[1::2], strict=True))
        return _follow(pairs, start, steps)

    def longest(self, k: int) -> int:
        return 2 * self.size + len(str(k)) + 2


@final
class Pointers(Task):
    """``cabd…2a``: the letter at each place names the place to go on from; two steps from ``a``."""

    name = "pointers"

    def make(self, k: int, draw: random.Random) -> tuple[str, str]:
        letters = ascii_letters[: self.size]
        to = _cycle(letters, draw)
        start = draw.choice(letters)
        table = "".join(to[letter] for letter in letters)
        return f"{table}{k}{start}", _follow(to, start, k)

    def solve(self, question: str) -> str:
        table, steps, place = _parts(question)
        for _ in range(steps):
            place = table[ascii_letters.index(place)]
        return place

    def longest(self, k: int) -> int:
        return self.size + len(str(k)) + 2


@final
class Arithmetic(Task):
    """``3+5*2``: from left to right, each step modulo ``size``."""

    name = "arithmetic"

    def make(self, k: int, draw: random.Random) -> tuple[str, str]:
        value = draw.randrange(self.size)
        text = str(value)
        for _ in range(k):
            sign, number = draw.choice("+-*"), draw.randrange(self.size)
            value = {"+": value + number, "-": value - number, "*": value * number}[sign]
            text += f"{sign}{number}"
        return text, str(value % self.size)

    def solve(self, question: str) -> str:
        value = int(question[0])
        for sign, number in zip(question[1::2], map(int, question[2::2]), strict=True):
            if sign == "*":
                value = value * number % self.size
            else:
                value = (value + (number if sign == "+" else -number)) % self.size
        return str(value)

    def longest(self, k: int) -> int:
        return 2 * k + 2


@final
class Brackets(Task):
    """``([]{<``: closed pairs among ``k`` open brackets; the answer closes these, ``>})`` there."""

    name = "brackets"
    kinds: ClassVar[tuple[str, ...]] = ("()", "[]", "{}", "<>")

    def make(self, k: int, draw: random.Random) -> tuple[str, str]:
        open_ones = [draw.choice(self.kinds[: self.size]) for _ in range(k)]
        text = ""
        for pair in open_ones:
            for _ in range(draw.randrange(2)):
                text += draw.choice(self.kinds[: self.size])
            text += pair[0]
        if draw.randrange(2):
            text += draw.choice(self.kinds[: self.size])
        return text, "".join(pair[1] for pair in reversed(open_ones))

    def solve(self, question: str) -> str:
        closing = {pair[0]: pair[1] for pair in self.kinds}
        stack: list[str] = []
        for sign in question:
            if sign in closing:
                stack.append(closing[sign])
            elif sign != stack.pop():
                raise ValueError(f"{question} is not balanced")
        return "".join(reversed(stack))

    def longest(self, k: int) -> int:
        return 4 * k + 2


TASKS: dict[TaskName, type[Task]] = {
    kind.name: kind for kind in (KHop, Arithmetic, Brackets, Pointers)
}


def task_of(config: TaskConfig) -> Task:
    """The task at the size that is asked for."""
    return TASKS[config.task](config.size or SIZES[config.task][2])


def questions(config: TaskConfig, k: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Questions of ``k`` steps with their answers, to train on and to test with.

    None is in both. Where there are not as many different ones, a quarter of those there are is
    tested, and the others are trained on again and again.

    Raises `DepthbenchError` where there are only a few.
    """
    task, draw = task_of(config), random.Random(f"{config.seed} {config.task} {k}")
    wanted = config.train + config.test
    found: dict[str, str] = {}
    for _ in range(8 * wanted):
        question, answer = task.make(k, draw)
        found[question] = answer
        if len(found) == wanted:
            break
    every = list(found.items())
    if len(every) < LEAST:
        raise DepthbenchError(
            f"{config.task} of k = {k} and size {task.size} has only about {len(every)} "
            "different questions. Use a larger --size or k"
        )
    # the first to be drawn are tested: more training questions leave the test as it is
    tested = config.test if len(every) == wanted else min(config.test, len(every) // 4)
    others = every[tested:]
    return [others[n % len(others)] for n in range(config.train)], every[:tested]


def _shuffled(letters: str, draw: random.Random) -> list[str]:
    return draw.sample(letters, len(letters))


def _cycle(letters: str, draw: random.Random) -> dict[str, str]:
    """Each letter's next, all in one ring.

    In any other map some starts come back early or meet, and guessing the start, or the letter that
    is named most, is right too often.
    """
    ring = _shuffled(letters, draw)
    return dict(zip(ring, [*ring[1:], ring[0]], strict=True))


def _follow(to: dict[str, str], start: str, steps: int) -> str:
    for _ in range(steps):
        start = to[start]
    return start


def _parts(question: str) -> tuple[str, int, str]:
    """What is looked up, the number of steps, and where they begin."""
    head = question.rstrip(ascii_letters).rstrip("0123456789")
    return head, int(question[len(head) : -1]), question[-1]
