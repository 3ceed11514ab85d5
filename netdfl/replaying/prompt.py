"""The interactive prompt of `netdfl replay`, which reads one command per line, typed or piped."""

from __future__ import annotations

import cmd
import shlex
import sys
from collections.abc import Callable
from typing import IO, Any, cast

from netdfl.core.errors import InputError, NetdflError
from netdfl.replaying import text
from netdfl.replaying.happenings import seconds
from netdfl.replaying.moment import Moment
from netdfl.replaying.replay import By, Replay

_BY = ("event", "message", "round")


class Prompt(cmd.Cmd):
    """A command interpreter for one replay, until `quit` or the end of the input."""

    def __init__(self, replay: Replay, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        """Read commands about `replay`. Piped commands are printed too, so that the output reads like a session."""
        super().__init__(stdin=stdin, stdout=stdout)
        self.replay = replay
        source = stdin or sys.stdin
        self.typed = source.isatty()
        self.use_rawinput = self.typed
        self.failed = False

    @property
    def prompt(self) -> str:  # type: ignore[override]
        """The prompt text, which shows the fleet's time."""
        return f"({seconds(self.replay.moment.at_ns)}) "

    def cmdloop(self, intro: object = None) -> None:
        """Read commands; Ctrl-C stops the running command, not the prompt."""
        self.say(f"{text.headline(self.replay.moment)}; `help` lists the commands, `quit` leaves")
        while True:
            try:
                super().cmdloop()
                return
            except KeyboardInterrupt:
                self.say("interrupted; the fleet stands where it is")

    def precmd(self, line: str) -> str:
        """Print a command that was piped and not typed, so that the output shows it; return it unchanged."""
        if not self.typed and line != "EOF":
            self.say(line)
        return line

    def onecmd(self, line: str) -> bool:
        """Execute one command; print a user's mistake as a sentence. Return whether to leave the prompt."""
        try:
            return bool(super().onecmd(line))
        except (InputError, NetdflError, ValueError) as error:
            self.failed = True
            self.say(f"error: {error}")
            return False

    def emptyline(self) -> bool:
        """Continue the replay by one event, at an empty line."""
        return self.do_step("")

    def default(self, line: str) -> None:
        """Raise InputError for an unknown command."""
        raise InputError(f"{line.split()[0]!r} is no command; `help` lists them")

    # looking

    def do_show(self, line: str) -> None:
        """show: all of this moment."""
        self.say(text.moment_text(self.replay.moment))

    def do_nodes(self, line: str) -> None:
        """nodes: every node's round, wait, mailbox, push-sum weight, model norm and distance from the average."""
        self._show(text.nodes_text)

    def do_flying(self, line: str) -> None:
        """flying: every message under way, and what its link will do to it."""
        self._show(text.flying_text)

    def do_next(self, line: str) -> None:
        """next: the events that are due next."""
        self._show(text.coming_text)

    def do_waits(self, line: str) -> None:
        """waits: who waits for whom, and what the diagnosis says of it."""
        self._show(text.waits_text)

    def do_news(self, line: str) -> None:
        """news: what happened last."""
        self._show(text.news_text)

    def do_changes(self, line: str) -> None:
        """changes: what you changed."""
        made = [f"  {seconds(each.at_ns)} (step {each.step})  {each.change}" for each in self.replay.changes]
        self.say("\n".join(made) or "nothing")

    # going

    def do_until(self, line: str) -> None:
        """until MOMENT: go to 12.3s, round 7, lost 2->3 #5 (sent, delivered, late), crash 4, stall or end."""
        self.replay.until(line)
        self._here()

    def do_step(self, line: str) -> bool:
        """step [event|message|round] [N]: go on by one, or by N; an empty line is one event."""
        by, count = _by(line)
        self.replay.step(by, count)
        self._here()
        return False

    def do_back(self, line: str) -> None:
        """back [event|message|round] [N], back 3.2s: go back, by playing again from the start."""
        if line and line.split()[0] not in _BY and not line.isdigit():
            self.replay.until(line)
        else:
            self.replay.back(*_by(line))
        self._here()

    # changing

    def do_drop(self, line: str) -> None:
        """drop 2->3 #5: lose a message that is under way."""
        self._change(lambda: self.replay.drop(line))

    def do_deliver(self, line: str) -> None:
        """deliver 2->3 #5: let a message that is under way arrive now."""
        self._change(lambda: self.replay.deliver(line))

    def do_crash(self, line: str) -> None:
        """crash 4: let a node crash now."""
        self._change(lambda: self.replay.crash(_node(line)))

    def do_restart(self, line: str) -> None:
        """restart 4 [kept|lost]: let a node that crashed live again, with its state or without."""
        node, _, state = line.partition(" ")
        if state not in ("", "kept", "lost"):
            raise InputError(f"{state!r} is neither kept nor lost")
        self._change(lambda: self.replay.restart(_node(node), cast(Any, state or "lost")))

    def do_pause(self, line: str) -> None:
        """pause 4: let a node stand still."""
        self._change(lambda: self.replay.pause(_node(line)))

    def do_resume(self, line: str) -> None:
        """resume 4: let a paused node go on."""
        self._change(lambda: self.replay.resume(_node(line)))

    # the end

    def do_finish(self, line: str) -> None:
        """finish: go on to the end, and judge what was played beside what the run came to."""
        finished = self.replay.finish()
        was = self.replay.run.result if self.replay.run.finished else {}
        for name, result in (("the run", was), ("played", finished.result)):
            if result:
                self.say(f"{name}: {'; '.join([str(result['verdict']), *map(str, result['reasons'])])}")
        if self.replay.out is not None:
            self.say(f"kept in {finished.path}; `netdfl diff {self.replay.run.path} {finished.path}` compares them")

    def do_quit(self, line: str) -> bool:
        """quit: leave."""
        return True

    do_EOF = do_quit

    def do_help(self, arg: str) -> None:
        """help: this list."""
        names = [name for name in self.get_names() if name.startswith("do_") and name != "do_EOF"]
        told = [(getattr(self, name).__doc__ or "").partition(": ") for name in names]
        self.say("\n".join(f"  {usage:<36} {what}" for usage, _, what in told if not arg or usage.startswith(arg)))

    def say(self, line: str) -> None:
        """Print `line`."""
        print(line, file=self.stdout)

    def _show(self, what: Callable[[Moment], str]) -> None:
        self.say(what(self.replay.moment))

    def _here(self) -> None:
        """Print the fleet's current state, and its last event."""
        moment = self.replay.moment
        last = f"; {moment.news[-1].text}" if moment.news else ""
        self.say(text.headline(moment) + last)

    def _change(self, change: Callable[[], object]) -> None:
        change()
        self.say("done; from here on it is another run than the one that was recorded")


def _by(line: str) -> tuple[By, int]:
    words = shlex.split(line)
    by = words.pop(0) if words and words[0] in _BY else "event"
    if len(words) > 1 or (words and not words[0].isdigit()):
        raise InputError(f"{line!r} is neither event, message nor round, with or without a number")
    return cast(By, by), int(words[0]) if words else 1


def _node(text: str) -> int:
    if not text.strip().isdigit():
        raise InputError(f"{text!r} is no node; name one by its number")
    return int(text)
