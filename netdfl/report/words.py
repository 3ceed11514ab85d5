"""Numbers and results of a run as text for people, such as what its time was spent on; a missing number is a dash.

The time comes from `time` in `result.json`, and from the rounds of each node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from netdfl.core.fates import NOT_DELIVERED, FateClass
from netdfl.core.types import Json
from netdfl.record.time_spent import seconds

WHY: Mapping[str, Mapping[str, str]] = {
    FateClass.LOST: {
        "loss": "the loss of its link",
        "queue": "the queue of its link was full",
        "down": "its link was down",
        "reset": "its link went down while it was on it",
        "corrupt": "damaged on its way, and the checksum said so",
        "dead": "TCP gave up sending it again",
    },
    FateClass.UNDELIVERABLE: {
        "gone": "its receiver had crashed, or ended",
        "unavailable": "nobody answered at its receiver's address, or the connection broke",
        "deadline": "its receiver took too long to accept it",
    },
    FateClass.LATE: {
        "deadline": "its receiver had waited for it up to the deadline",
        "went_on": "its receiver had gone on with what it had, or did not expect it",
    },
}
"""Reasons why messages were not delivered, in words, by class of messages (lost, late and so on) and reason."""


def share(value: float | None) -> str:
    """Return a fraction as a percentage: `93.1%`."""
    return "–" if value is None else f"{value:.1%}"


def figure(value: float | None) -> str:
    """Return a number as text with three digits."""
    return "–" if value is None else f"{value:.3g}"


LEAST_ERROR = 1e-3
"""The relative error from which on a number is shown with the bound on its error."""


def bounded(text: str, value: float, error: float) -> str:
    """Return `text`, which stands for the number `value`, with the bound `error` on its error if that is not small."""
    return f"{text} ± {error:.2g}" if error > LEAST_ERROR * abs(value) else text


def some(items: Sequence[object], most: int = 8) -> str:
    """Return the first items of a list as text: `4, 5, 6 and 40 more`."""
    shown = ", ".join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table as text, with each column aligned."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def not_delivered(messages: Json) -> str:
    """Return the undelivered messages as text: `168 lost (loss), 310 late (290 deadline, 20 went on)`.

    Late messages are counted by why their receiver had ended the wait: a deadline, or it had enough and went on.
    `messages` is the entry of that name in `result.json`; the text is `none` if all were delivered.
    """
    return (
        ", ".join(
            f"{messages[name]:,} {name}{_why(messages['why'].get(name, {}), messages[name])}"
            for name in NOT_DELIVERED
            if messages[name]
        )
        or "none"
    )


def _why(reasons: Mapping[str, int], total: int) -> str:
    """Return why messages were not delivered, in parentheses, with the number of each reason if there are several."""
    words = [reason.replace("_", " ") for reason in reasons]
    if len(words) == 1 and sum(reasons.values()) == total:
        return f" ({words[0]})"
    told = ", ".join(f"{number:,} {word}" for word, number in zip(words, reasons.values(), strict=True))
    return f" ({told})" if told else ""


def duration(seconds: float) -> str:
    """Return a duration as text: `40 ms`, `3.2 s`, `48 s`, `2 min 5 s`, `3 h 12 min`."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def warnings(result: Json) -> Iterator[str]:
    """Yield the sentences of the warnings in a run's result, except those among the reasons of its verdict."""
    told = set(result["reasons"])
    yield from (each["text"] for each in result.get("warnings", ()) if each["text"] not in told)


def about_verdict(result: Json) -> list[str]:
    """Return all sentences beside a run's verdict: its reasons, expected failures that occurred, warnings, remarks."""
    return [*result["reasons"], *result.get("met", ()), *warnings(result), *remarks(result)]


def remarks(result: Json) -> Iterator[str]:
    """Yield remarks on a run besides its verdict, for example that some messages were not recorded.

    Others are about refused messages, push-sum weight that was lost or is new, crashed nodes and their restarts, and
    scheduled events that never came.
    """
    if "recorded" in result:
        yield f"the record: {result['recorded']['text']}"
    if "kept_as_lines" in result:
        yield f"the record stays JSON lines: {result['kept_as_lines']}"
    yield from _refused(result)
    yield from _weight(result)
    yield from _crashed(result.get("crashed", ()))
    for restart in result.get("restarts", ()):
        if restart["state"] == "lost":
            yield _lost_state(restart)
        if restart["state"] == "none":
            yield _joined(restart)
    if result.get("given_up", {}).get("lost"):  # those that came after all cost nothing
        yield _given_up(**result["given_up"])
    if result.get("events_not_reached"):
        yield _unreached(result["events_not_reached"])


HONEST = ("hello_first", "stale_epoch", "overloaded")
"""Reasons for which messages are refused although their sender works well: a node was restarted, or is overloaded."""


def _refused(result: Json) -> Iterator[str]:
    """Yield sentences about refused messages and their senders, if senders are at fault and no warning says so."""
    made = any(each["kind"] == "weight_made" for each in result.get("warnings", ()))
    for each in result.get("refused", ()):
        passed_on = made and " in place of w from " in each.get("text", "")  # by whoever got weight that was made up
        if each["reason"] not in ("not_finite", *HONEST) and "text" in each:
            yield from () if passed_on else (each["text"],)


ROUNDED = 1e-6


def _weight(result: Json) -> Iterator[str]:
    """Yield a sentence if nodes hold less push-sum weight at the end than at the start, unless a warning says so."""
    held, told = result.get("weight_sum"), {each["kind"] for each in result.get("warnings", ())}
    if held is not None and held < 1 - ROUNDED and "weight_lost" not in told:
        lost = not_delivered(result["messages"])
        crashed = math.fsum(each["weight"] or 0 for each in result.get("crashed", ())) / result["nodes"]
        places = ["with nodes that crashed"] if crashed else []
        if abs(1 - held - crashed) > ROUNDED:
            places.append(f"in messages that were not read, or nobody has it; not delivered: {lost}")
        rest = f"the rest was {', '.join(places)}"
        yield f"the nodes hold {held:.4g} of the push-sum weight that they began with; {rest}"


def _crashed(crashed: Sequence[Json]) -> Iterator[str]:
    """Yield a sentence for nodes that crashed as scripted and did not return, with their push-sum weight."""
    if crashed:
        who = some([f"{each['node']} (round {each['round']})" for each in crashed])
        weights = [each["weight"] for each in crashed if each["weight"] is not None]
        mass = f", and held w = {sum(weights):.4g}" + (" together" if len(weights) > 1 else "") if weights else ""
        yield f"node{'s' * (len(crashed) > 1)} {who} crashed as scripted and did not return{mass}"


def _given_up(messages: int, lost: int, lost_weight: float) -> str:
    mass = f", and their push-sum mass is gone (w = {lost_weight:.4g})" if lost_weight else ""
    return f"delivery gave up {messages:,} messages that nobody answered; {lost:,} of them never arrived{mass}"


def _unreached(found: Json) -> str:
    first, count = found["first"], found["count"]
    when = f"round {first['at_round']}" if "at_round" in first else f"{first['at_ns'] / 1e9:g} s"
    entries = "1 entry of events" if count == 1 else f"{count} entries of events"
    return (
        f"of {entries} nothing came, as the nodes ended at {found['ended_s']:.4g} s: "
        f"first events[{first['source']}], {_action(first)} at {when}"
    )


def _action(event: Json) -> str:
    """Return a scheduled event's action as text: `crash`, or for links its entry, such as `partition 0..3 | 4..7`."""
    if event["action"] not in ("set", "unset") or "entry" not in event:
        return str(event["action"]).replace("_", " ")
    return f"{event['entry'].replace('_', ' ')} {event.get('where', '')}".rstrip()


def _lost_state(restart: Mapping[str, object]) -> str:
    new, gone = restart.get("new_weight"), restart.get("lost_weight")
    weight = "" if new is None else f" and w = {new:g}" + (", which is new mass" if new else "")
    mass = "" if gone is None else f", and its mass with it (w = {gone:.4g})"
    lost = f"node {restart['node']} lost its state in round {restart['round']}{mass}; it "
    if "rejoined_in" not in restart:
        return f"{lost}returned at {restart['returned_s']:.4g} s, and has not rejoined"
    return f"{lost}rejoined in round {restart['rejoined_in']} with {_model_of(restart)}{weight}"


def _joined(restart: Mapping[str, object]) -> str:
    if "rejoined_in" not in restart:
        return f"node {restart['node']} joined at {restart['returned_s']:.4g} s, and had no round left"
    weight = "" if restart["new_weight"] is None else f" and w = {restart['new_weight']:g}"
    when = f"at {restart['returned_s']:.4g} s, in round {restart['rejoined_in']}"
    return f"node {restart['node']} joined {when}, with {_model_of(restart)}{weight}"


def _model_of(restart: Mapping[str, object]) -> str:
    source = restart["model_of"]
    return f"its initial model ({restart['reason']})" if source is None else f"the model of node {source}"


def own_figures(result: Json) -> list[tuple[str, float, str]]:
    """Return the metrics of a user's own task: name, last value of the average model, and a text about local models.

    They include the loss if no accuracy is measured.
    """
    metrics = result.get("metrics") or {}
    if not isinstance(metrics, dict):
        return []
    shown = ("test_accuracy", "test_loss") if "test_accuracy" in metrics else ()
    found = []
    for name, course in metrics.items():
        stem = name.removeprefix("test_")
        if stem != name and name not in shown and course["last"] is not None:
            means = [(what, metrics.get(f"mean_{what}_{stem}", {}).get("last")) for what in ("local", "personal")]
            more = "".join(f", {figure(value)} mean of {what} models" for what, value in means if value is not None)
            found.append((name.replace("_", " "), course["last"], more))
    return found


PARTS = {
    "compute_s": "compute",
    "links_s": "links: delay, rate and queues",
    "resending_s": "until what was lost was sent again",
    "deadlines_s": "until deadlines, for messages that did not come in time",
    "lost_s": "until later messages told that one was lost",
    "skipped_s": "in stalls, until the missing messages were skipped",
    "behind_s": "waiting for nodes that were behind, down, paused or slow",
    "rest_s": "anything else: mixing, sending, saving",
    "end_s": "at the end, in which no node went on",
}


def part_rows(spent: Json) -> list[list[str]]:
    """Return table rows of what a run's time was spent on: the purpose, its time, its share; the largest first.

    `spent` is the entry `time` of `result.json`.
    """
    parts = sorted(((spent[key], words) for key, words in PARTS.items() if spent.get(key, 0) > 0), reverse=True)
    return [[words, seconds(value), share(value / spent["total_s"])] for value, words in parts]


def round_words(spent: Json) -> str:
    """Return the length of rounds as text: `1.05 s at the median, 31 s at most (round 3); a deadline of 2 s`.

    Empty if no round ended.
    """
    lengths = [value for value in spent["rounds"]["median_s"] if value is not None]
    if not lengths:
        return ""
    longest = max((value, -round) for round, value in enumerate(spent["rounds"]["longest_s"]) if value is not None)
    limits = [value for value in spent["rounds"]["deadline_s"] if value is not None]
    words = f"{seconds(median(lengths))} at the median, {seconds(longest[0])} at most (round {-longest[1]})"
    return f"{words}; {_deadlines(limits)}" if limits else words


def _deadlines(limits: Sequence[float]) -> str:
    low, high = seconds(min(limits)), seconds(max(limits))
    return f"a deadline of {low}" if low == high else f"deadlines of {low} to {high}"


NO_TIME = "Rounds took no virtual time: the scenario has neither compute time nor delays that would take any"


def say_rounds(spent: Json) -> str:
    """Return the length of rounds as a sentence, in the words of `round_words`; another if no virtual time passed."""
    if not spent["rounds"]["longest_s"]:
        return "No node ended a round."
    passed = any(spent["rounds"]["longest_s"])
    return f"A round took {round_words(spent)}." if passed else f"{NO_TIME}."
