"""What a trial is remembered by, change for change, and what becomes of a trial in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from netdfl.training import remembering
from netdfl.training.remembering import apart, fingerprint, folder, known, remember


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trials are remembered meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    return tmp_path / "cache" / "netdfl" / "trials"


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.share, self.many, self.word, self.on = 0.5, 3, "a", True
        self.array = [1]
        self.then: Callable[[Tensor], Tensor] = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.second(self.first(x)))


class Net(Base):
    pass


def one(x: Tensor) -> Tensor:
    return x + 1


def two(x: Tensor) -> Tensor:
    return x + 2


def code(function: Callable[..., Any]) -> Callable[[Net], None]:
    """Let the class's forward be another one while a fingerprint is taken."""

    def change(_: Net) -> None:
        Base.forward.__code__ = function.__code__

    return change


CHANGES: dict[str, Callable[[Any], object]] = {
    "a number": lambda net: setattr(net, "share", 0.6),
    "a whole number": lambda net: setattr(net, "many", 4),
    "a text": lambda net: setattr(net, "word", "b"),
    "a switch": lambda net: setattr(net, "on", False),
    "a number of a part": lambda net: setattr(net.second, "momentum", 0.2),
    "whether it trains": lambda net: net.eval(),
    "another part": lambda net: setattr(net, "first", nn.Linear(2, 2, bias=False)),
    "a function of its own": lambda net: setattr(net, "then", one),
    "another function of its own": lambda net: setattr(net, "then", two),
    "its type": lambda net: net.double(),
    "what is trained": lambda net: net.first.weight.requires_grad_(False),
    "a parameter that is another's": lambda net: setattr(net.second, "bias", net.second.weight),
    "a buffer's shape": lambda net: setattr(net.second, "running_mean", torch.zeros(3)),
    "a buffer more": lambda net: net.register_buffer("seen", torch.ones(1)),
    "code of its base class": code(lambda self, x: x),
}
SAME: dict[str, Callable[[Any], object]] = {
    "values of parameters": lambda net: net.first.weight.data.add_(1),
    "values of buffers": lambda net: net.second.running_mean.add_(1),
    "what is no number or text": lambda net: net.array.append(2),
}


@pytest.fixture
def put_back() -> Iterator[None]:
    before = Base.forward.__code__
    yield
    Base.forward.__code__ = before


def test_each_change_of_a_module_makes_another_trial_of_it(put_back: None) -> None:
    found = {"none": fingerprint(Net(), (), "")}
    for name, change in CHANGES.items():
        net = Net()
        change(net)
        found[name] = fingerprint(net, (), "")
    assert len(set(found.values())) == len(found)


def test_values_make_no_other_trial_and_what_it_is_told_does() -> None:
    begun = fingerprint(Net(), (), "")
    for change in SAME.values():
        net = Net()
        change(net)
        assert fingerprint(net, (), "") == begun
    others = [fingerprint(Net(), (), "more"), fingerprint(Net(), (one,), ""), fingerprint(Net(), (two,), "")]
    assert len({begun, *others}) == 4
    for known_code in (nn.Linear, folder, int):  # of torch, of netdfl, and of Python: by their versions
        assert fingerprint(Net(), (known_code,), "") == begun


class Parts:
    @staticmethod
    def one(x: int) -> int:
        return x

    @classmethod
    def two(cls, x: int) -> int:
        return x + 1


def test_all_functions_of_a_class_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {fingerprint(Net(), (Parts,), "")}
    monkeypatch.setattr(Parts, "one", staticmethod(lambda x: 9 * x))
    found.add(fingerprint(Net(), (Parts,), ""))
    monkeypatch.setattr(Parts, "two", classmethod(lambda cls, x: 9 * x))
    found.add(fingerprint(Net(), (Parts,), ""))
    assert len(found) == 3


def test_files_of_a_users_modules_count_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remembered_own.py").write_text("SCALE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("remembered_own")
    begun = fingerprint(Net(), (), "")
    own = remembering.own_files()
    assert {str(tmp_path / "remembered_own.py"), __file__} <= set(own)
    assert not {torch.__file__, os.__file__, remembering.__file__} & set(own)
    assert own == sorted(own)
    (tmp_path / "remembered_own.py").write_text("SCALE = 2\n")
    assert fingerprint(Net(), (), "") != begun
    (tmp_path / "remembered_own.py").unlink()
    assert fingerprint(Net(), (), "")
    del sys.modules["remembered_own"]


def test_trials_are_kept_in_the_users_cache(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder() == kept
    for unset in ("", None):
        monkeypatch.setenv("XDG_CACHE_HOME", unset) if unset is not None else monkeypatch.delenv("XDG_CACHE_HOME")
        assert folder() == Path.home() / ".cache" / "netdfl" / "trials"


def test_what_is_found_is_written_once_whole_and_read_by_other_processes(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known("key") is None
    remember("key", ["rows"])
    assert known("key") == ["rows"]
    assert [file.name for file in kept.iterdir()] == ["key"]
    assert json.loads((kept / "key").read_text()) == {"differs": ["rows"]}
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    assert known("key") == ["rows"]
    (kept / "key").unlink()
    assert known("key") == ["rows"], "this process has read it"


@pytest.mark.parametrize(("num", "left"), [(4, [0, 1, 2, 3, 4]), (5, [2, 3, 4, 5]), (6, [3, 4, 5, 6])])
def test_only_beyond_the_most_is_the_older_half_forgotten(
    num: int, left: list[int], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "MOST", 4)
    kept.mkdir(parents=True)
    for number in range(num):
        (kept / str(number)).write_text("")
        os.utime(kept / str(number), (100 + number, 100 + number))
    remember(str(num), [])
    assert sorted(int(file.name) for file in kept.iterdir()) == left


def test_a_process_of_its_own_is_ended_after_its_time_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    fork = os.fork

    def forked() -> int:
        begun.append(fork())
        return begun[-1]

    def threads() -> list[str]:
        return [str(torch.get_num_threads())]

    monkeypatch.setattr(os, "fork", forked)
    assert apart(threads) == ["1"], "of its parent's threads there are none"
    monkeypatch.setattr(remembering, "LONGEST_S", 0.01)
    assert apart(lambda: time.sleep(600) or []) is None  # type: ignore[func-returns-value]
    assert apart(lambda: sys.exit(3)) is None
    for child in begun:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
