"""The protocol of shared buffers as a small model: one buffer with one slot, its lender, and its reader.

Each side's stores go through a store buffer, from which they reach memory later; a load sees its own side's stores at
once. Messages (frames, hellos, their replies) leave when the stores before them are in memory, as a system call has it.
All else is free: at any moment the reader may be killed or leave and return, a stream may break with its frame on the
way or lost, and any side may stand still for ever, for nobody has to take the next step.

    walk(Rules())                   all states that can be reached; raises Violation where a promise is broken
    walk(Rules(takes_back=True))    the same for a variant
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

UNTOUCHED, BEGUN, GIVEN_BACK = range(3)
BODY, TOKEN, STATE, ANSWER, PRESENCE = range(5)
IDLE, BEGINS, LOOKS_AGAIN, READS, OFFERS, WAITS, ENDS = range(7)
Stores = tuple[tuple[int, int], ...]


class Violation(Exception):
    """A promise of the protocol that an order of steps breaks."""


@dataclass(frozen=True)
class Rules:
    """The protocol as it is built, or with one of its steps taken out or replaced."""

    num_tokens: int = 2
    num_lives: int = 2
    lives_end: bool = True
    buffered: bool = True
    """Stores wait in a buffer a side; else each is in memory at once."""
    in_order: bool = True
    """Stores reach memory in their order (x86); else in any order but that of one word (ARM)."""
    messages_wait: bool = True
    """A message leaves when the stores before it are in memory."""
    names_life: bool = True
    """A reference names the life of the reader that it is for, and no other takes it."""
    asks_reader: bool = True
    """After a stream that broke a buffer is free when the reader has accepted a renewal; else at once."""
    ends_waiting: bool = True
    """A reader that accepts a renewal ends the calls that wait for room."""
    fence_at_giving_back: bool = True
    """What a reader loaded and stored of a body is done when it gives the body back."""
    fence_at_leaving: bool = True
    """A life's stores are in memory before its presence ends."""
    takes_back: bool = False
    """The earlier protocol: the lender clears the token and frees what nobody holds; readers load it twice."""
    fence_at_looking: bool = False
    """With `takes_back`: each side's store is in memory before it loads the other's word."""


class Frame(NamedTuple):
    """A reference on its way."""

    token: int
    mark: int
    stream: int


class State(NamedTuple):
    """All that a step may depend on."""

    memory: tuple[int, ...] = (0, 0, 0, 0, 1)
    lender_stores: Stores = ()
    reader_stores: Stores = ()
    # the lender
    messages: tuple[int, ...] = ()  # the message of each token that was lent
    token: int = 0  # of the lease that has the buffer; 0: it is free
    mark: int = 0
    told: bool = False
    released: bool = False
    closed: bool = False
    again: bool = False  # the message goes again once the reader has said whether it was begun
    stream: int = 1
    broken: bool = False
    # on the way
    frames: frozenset[Frame] = frozenset()
    hello: int = 0
    accepted: int = 0
    # the reader
    life: int = 1
    alive: bool = True
    killed: bool = False
    renewal: int = 0
    pc: int = IDLE
    current: int = 0
    held: frozenset[int] = frozenset()
    taken: tuple[int, ...] = ()  # messages, as often as they were delivered


def walk(rules: Rules) -> dict[State, list[State]]:
    """Return every state that can be reached, with the states that each leads to. Raises Violation."""
    first = State()
    found: dict[State, list[State]] = {}
    ahead = deque([first])
    seen = {first}
    while ahead:
        state = ahead.popleft()
        found[state] = list(steps(state, rules))
        for after in found[state]:
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    return found


def leaked(found: dict[State, list[State]]) -> list[State]:
    """Return the states from which no order of steps leads to a free buffer."""
    before: dict[State, list[State]] = {}
    for state, after in found.items():
        for each in after:
            before.setdefault(each, []).append(state)
    good = {state for state in found if not state.token}
    ahead = list(good)
    while ahead:
        for state in before.get(ahead.pop(), ()):
            if state not in good:
                good.add(state)
                ahead.append(state)
    return [state for state in found if state not in good]


def steps(s: State, rules: Rules) -> Iterator[State]:
    """Yield each state that one step of anybody leads to."""
    yield from _memory_steps(s, rules)
    yield from _lender_steps(s, rules)
    yield from _network_steps(s)
    if s.alive:
        yield from _reader_steps(s, rules)
    yield from _life_steps(s, rules)


# memory


def _memory_steps(s: State, rules: Rules) -> Iterator[State]:
    for name in ("lender_stores", "reader_stores"):
        stores: Stores = getattr(s, name)
        ahead: set[int] = set()
        for number, (word, value) in enumerate(stores):
            if word not in ahead and (rules.in_order is False or number == 0):
                memory = (*s.memory[:word], value, *s.memory[word + 1 :])
                yield s._replace(memory=memory, **{name: stores[:number] + stores[number + 1 :]})
            ahead.add(word)


def _load(s: State, stores: Stores, word: int) -> int:
    return next((value for at, value in reversed(stores) if at == word), s.memory[word])


def _lender_stored(s: State, rules: Rules, *stores: tuple[int, int]) -> State:
    if rules.buffered:
        return s._replace(lender_stores=s.lender_stores + stores)
    return s._replace(memory=_written(s.memory, stores))


def _reader_stored(s: State, rules: Rules, *stores: tuple[int, int]) -> State:
    if rules.buffered:
        return s._replace(reader_stores=s.reader_stores + stores)
    return s._replace(memory=_written(s.memory, stores))


def _written(memory: tuple[int, ...], stores: Stores) -> tuple[int, ...]:
    words = list(memory)
    for word, value in stores:
        words[word] = value
    return tuple(words)


# the lender


def _lender_steps(s: State, rules: Rules) -> Iterator[State]:
    may_send = not s.lender_stores or not rules.messages_wait
    if rules.asks_reader and s.broken and not s.hello and not s.accepted and may_send:
        yield s._replace(hello=len(s.messages) + 1)
    if s.accepted:
        yield _has_renewed(s)
    if not s.token:
        yield from _lent(s, rules)
    elif s.told:
        yield from _waiting_lender_steps(s, rules)
    else:
        yield s._replace(token=0)  # given up before anybody was told
        if may_send and not s.broken:
            yield s._replace(told=True, frames=s.frames | {Frame(s.token, s.mark, s.stream)})


def _has_renewed(s: State) -> State:
    """Note that the reader has accepted a renewal: an older message was begun and has an answer, or was not."""
    renewed = s._replace(accepted=0, broken=False, stream=s.stream + 1)
    if not s.told or s.token >= s.accepted:
        return renewed
    answered = bool(_load(s, s.lender_stores, ANSWER))
    return renewed._replace(closed=True, released=s.released or s.again, again=s.again and not answered)


def _waiting_lender_steps(s: State, rules: Rules) -> Iterator[State]:
    answer = _load(s, s.lender_stores, ANSWER)
    if not s.released and answer:
        if answer != s.token:
            raise Violation(f"the answer to {answer} is taken for the answer to {s.token}")
        yield s._replace(released=True, again=False)
    if not s.broken and not s.released and not answer:
        yield from _stream_ended(s, rules)
    if s.released:
        yield from _freed(s, rules)


def _lent(s: State, rules: Rules) -> Iterator[State]:
    """Lend the next message, or the last one again where it was not begun."""
    mark = _load(s, s.lender_stores, PRESENCE)
    if len(s.messages) == rules.num_tokens or not mark:
        return
    token = len(s.messages) + 1
    message = s.messages[-1] if s.again else len(set(s.messages)) + 1
    lent = _lender_stored(s, rules, (BODY, token), (STATE, UNTOUCHED), (ANSWER, 0), (TOKEN, token))
    yield lent._replace(
        messages=(*s.messages, message),
        token=token,
        mark=mark,
        told=False,
        released=False,
        closed=False,
        again=False,
    )


def _stream_ended(s: State, rules: Rules) -> Iterator[State]:
    """Break the stream: the message has failed, or goes again if it was not begun."""
    ended = s._replace(broken=True)
    if rules.takes_back:
        ended = _lender_stored(ended, rules, (TOKEN, 0))
        yield ended._replace(released=True, closed=True, broken=False, stream=s.stream + 1)
    elif not rules.asks_reader:
        yield ended._replace(released=True, closed=True, broken=False, stream=s.stream + 1)
    else:
        yield ended._replace(released=True)
        yield ended._replace(again=True)


def _freed(s: State, rules: Rules) -> Iterator[State]:
    """Free the buffer, by what one look at the state, or at the reader's life, says."""
    looks = not rules.fence_at_looking or not s.lender_stores
    state = _load(s, s.lender_stores, STATE)
    dead = s.killed and not s.reader_stores and s.mark == s.life
    gone = _load(s, s.lender_stores, PRESENCE) != s.mark or dead
    if gone or (looks and (state == GIVEN_BACK or (s.closed and state == UNTOUCHED))):
        yield s._replace(token=0)


# the network


def _network_steps(s: State) -> Iterator[State]:
    """Lose a frame of a stream that is over, or a hello, which fails the message that waits for it."""
    for frame in s.frames:
        if s.broken or frame.stream < s.stream:
            yield s._replace(frames=s.frames - {frame})
    if s.hello:
        yield s._replace(hello=0, released=s.released or (s.told and s.again), again=False)


# the reader


def _reader_steps(s: State, rules: Rules) -> Iterator[State]:
    may_send = not s.reader_stores or not rules.messages_wait
    between = s.pc in (IDLE, WAITS)
    if s.pc == IDLE:
        for frame in s.frames:
            yield from _begun(s, rules, frame)
    elif s.pc == BEGINS:
        after = LOOKS_AGAIN if rules.takes_back else READS
        yield _reader_stored(s, rules, (STATE, BEGUN))._replace(pc=after)
    elif s.pc == LOOKS_AGAIN:
        yield from _looked_again(s, rules)
    elif s.pc == READS:
        _check_body(s, s.current)
        yield s._replace(pc=OFFERS)
    elif s.pc in (OFFERS, WAITS):
        yield _delivered(s, rules)
        if s.pc == OFFERS:
            yield s._replace(pc=WAITS)
    elif s.pc == ENDS and not (rules.fence_at_giving_back and s.reader_stores):
        yield _reader_stored(s, rules, (STATE, GIVEN_BACK))._replace(pc=IDLE, current=0)
    if s.hello and between and may_send:
        yield _renewed(s, rules)
    if between:
        for token in s.held:  # a mailbox that holds a body reads it when it mixes
            _check_body(s, token)
            given = _reader_stored(s, rules, (STATE, GIVEN_BACK))
            if not rules.fence_at_giving_back:
                yield given  # and the load comes later
            if not (rules.fence_at_giving_back and s.reader_stores):
                yield given._replace(held=s.held - {token})


def _begun(s: State, rules: Rules, frame: Frame) -> Iterator[State]:
    """Take a frame: begin it, or refuse it, which its sender hears if the stream is still there."""
    left = s._replace(frames=s.frames - {frame})
    lent = (frame.mark == s.life or not rules.names_life) and frame.token >= s.renewal
    if lent and _load(s, s.reader_stores, TOKEN) == frame.token and _load(s, s.reader_stores, STATE) == UNTOUCHED:
        yield left._replace(pc=BEGINS, current=frame.token)
    elif frame.stream == s.stream and not s.broken and frame.token == s.token:
        yield left._replace(closed=True, released=True)
    else:
        yield left


def _looked_again(s: State, rules: Rules) -> Iterator[State]:
    if rules.fence_at_looking and s.reader_stores:
        return
    if _load(s, s.reader_stores, TOKEN) == s.current:
        yield s._replace(pc=READS)
    else:
        yield _reader_stored(s, rules, (STATE, UNTOUCHED))._replace(pc=IDLE, current=0)


def _check_body(s: State, token: int) -> None:
    body = _load(s, s.reader_stores, BODY)
    if body != token:
        raise Violation(f"the reader of {token} reads the body of {body}")


def _delivered(s: State, rules: Rules) -> State:
    message = s.messages[s.current - 1]
    if message in s.taken:
        raise Violation(f"message {message} is delivered twice")
    done = _reader_stored(s, rules, (ANSWER, s.current))
    return done._replace(pc=IDLE, current=0, held=s.held | {s.current}, taken=(*s.taken, message))


def _renewed(s: State, rules: Rules) -> State:
    accepted = s._replace(hello=0, accepted=s.hello, renewal=max(s.renewal, s.hello))
    if s.pc == WAITS and s.current < s.hello and rules.ends_waiting:
        return accepted._replace(pc=ENDS)
    return accepted


# lives


def _life_steps(s: State, rules: Rules) -> Iterator[State]:
    """Kill the reader wherever it is; let it leave in good order; begin its next life."""
    gone: dict[str, Any] = {"alive": False, "pc": IDLE, "current": 0, "held": frozenset(), "renewal": 0}
    if s.alive and rules.lives_end:
        yield s._replace(**gone, killed=True)
        if s.pc in (IDLE, WAITS) and not (rules.fence_at_leaving and s.reader_stores):
            leaves = s
            for _ in (*s.held, *([s.current] if s.current else [])):
                leaves = _reader_stored(leaves, rules, (STATE, GIVEN_BACK))
            if not (rules.fence_at_leaving and leaves.reader_stores):
                yield _reader_stored(leaves, rules, (PRESENCE, 0))._replace(**gone)
            else:
                yield leaves._replace(pc=IDLE, current=0, held=frozenset())
    elif not s.alive and s.life < rules.num_lives and not (s.killed and s.reader_stores):
        # one that left returns in its process, where its earlier stores may be on the way still
        yield _reader_stored(s, rules, (PRESENCE, s.life + 1))._replace(life=s.life + 1, alive=True, killed=False)
