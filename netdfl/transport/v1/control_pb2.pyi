from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Report(_message.Message):
    __slots__ = ("hello", "progress", "model_saved", "happened", "broke", "crashed", "evaluated", "probe_reply", "bye", "ask_clock", "file_part", "core_flows")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_SAVED_FIELD_NUMBER: _ClassVar[int]
    HAPPENED_FIELD_NUMBER: _ClassVar[int]
    BROKE_FIELD_NUMBER: _ClassVar[int]
    CRASHED_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    PROBE_REPLY_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    ASK_CLOCK_FIELD_NUMBER: _ClassVar[int]
    FILE_PART_FIELD_NUMBER: _ClassVar[int]
    CORE_FLOWS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    progress: Progress
    model_saved: ModelSaved
    happened: Happened
    broke: Broke
    crashed: Crashed
    evaluated: Evaluated
    probe_reply: ProbeReply
    bye: Bye
    ask_clock: AskClock
    file_part: FilePart
    core_flows: CoreFlows
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., model_saved: _Optional[_Union[ModelSaved, _Mapping]] = ..., happened: _Optional[_Union[Happened, _Mapping]] = ..., broke: _Optional[_Union[Broke, _Mapping]] = ..., crashed: _Optional[_Union[Crashed, _Mapping]] = ..., evaluated: _Optional[_Union[Evaluated, _Mapping]] = ..., probe_reply: _Optional[_Union[ProbeReply, _Mapping]] = ..., bye: _Optional[_Union[Bye, _Mapping]] = ..., ask_clock: _Optional[_Union[AskClock, _Mapping]] = ..., file_part: _Optional[_Union[FilePart, _Mapping]] = ..., core_flows: _Optional[_Union[CoreFlows, _Mapping]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("peers", "start", "gone", "returned", "evaluate", "stop", "probe", "recover", "clock_reading", "core_rates")
    PEERS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    CLOCK_READING_FIELD_NUMBER: _ClassVar[int]
    CORE_RATES_FIELD_NUMBER: _ClassVar[int]
    peers: Peers
    start: Start
    gone: Gone
    returned: Returned
    evaluate: Evaluate
    stop: Stop
    probe: Probe
    recover: Recover
    clock_reading: ClockReading
    core_rates: CoreRates
    def __init__(self, peers: _Optional[_Union[Peers, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., gone: _Optional[_Union[Gone, _Mapping]] = ..., returned: _Optional[_Union[Returned, _Mapping]] = ..., evaluate: _Optional[_Union[Evaluate, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., recover: _Optional[_Union[Recover, _Mapping]] = ..., clock_reading: _Optional[_Union[ClockReading, _Mapping]] = ..., core_rates: _Optional[_Union[CoreRates, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "role", "pid", "address", "scenario_hash", "protocol_version", "epoch", "versions")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_HASH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    node: int
    role: str
    pid: int
    address: str
    scenario_hash: str
    protocol_version: int
    epoch: int
    versions: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[int] = ..., role: _Optional[str] = ..., pid: _Optional[int] = ..., address: _Optional[str] = ..., scenario_hash: _Optional[str] = ..., protocol_version: _Optional[int] = ..., epoch: _Optional[int] = ..., versions: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("round", "ended", "train_loss", "at_ns", "bytes_sent", "messages")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TRAIN_LOSS_FIELD_NUMBER: _ClassVar[int]
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    round: int
    ended: bool
    train_loss: float
    at_ns: int
    bytes_sent: int
    messages: MessageCounts
    def __init__(self, round: _Optional[int] = ..., ended: _Optional[bool] = ..., train_loss: _Optional[float] = ..., at_ns: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., messages: _Optional[_Union[MessageCounts, _Mapping]] = ...) -> None: ...

class MessageCounts(_message.Message):
    __slots__ = ("sent", "delivered", "lost", "undeliverable", "late", "duplicate", "refused", "unfinished")
    SENT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERABLE_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    sent: int
    delivered: int
    lost: int
    undeliverable: int
    late: int
    duplicate: int
    refused: int
    unfinished: int
    def __init__(self, sent: _Optional[int] = ..., delivered: _Optional[int] = ..., lost: _Optional[int] = ..., undeliverable: _Optional[int] = ..., late: _Optional[int] = ..., duplicate: _Optional[int] = ..., refused: _Optional[int] = ..., unfinished: _Optional[int] = ...) -> None: ...

class ModelSaved(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Happened(_message.Message):
    __slots__ = ("at_ns", "round", "kind", "details")
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    at_ns: int
    round: int
    kind: str
    details: str
    def __init__(self, at_ns: _Optional[int] = ..., round: _Optional[int] = ..., kind: _Optional[str] = ..., details: _Optional[str] = ...) -> None: ...

class Broke(_message.Message):
    __slots__ = ("at_ns", "round", "reason")
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at_ns: int
    round: int
    reason: str
    def __init__(self, at_ns: _Optional[int] = ..., round: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Crashed(_message.Message):
    __slots__ = ("at_ns", "round", "source", "at_round", "state", "weight")
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AT_ROUND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    at_ns: int
    round: int
    source: int
    at_round: int
    state: str
    weight: float
    def __init__(self, at_ns: _Optional[int] = ..., round: _Optional[int] = ..., source: _Optional[int] = ..., at_round: _Optional[int] = ..., state: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class Evaluated(_message.Message):
    __slots__ = ("round", "figures")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    round: int
    figures: str
    def __init__(self, round: _Optional[int] = ..., figures: _Optional[str] = ...) -> None: ...

class AskClock(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("path", "offset", "data", "grows", "last")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    GROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset: int
    data: bytes
    grows: bool
    last: bool
    def __init__(self, path: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., grows: _Optional[bool] = ..., last: _Optional[bool] = ...) -> None: ...

class CoreFlows(_message.Message):
    __slots__ = ("offers",)
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    offers: _containers.RepeatedCompositeFieldContainer[CoreRate]
    def __init__(self, offers: _Optional[_Iterable[_Union[CoreRate, _Mapping]]] = ...) -> None: ...

class CoreRate(_message.Message):
    __slots__ = ("dst", "rate_bps", "since_ns")
    DST_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    dst: int
    rate_bps: int
    since_ns: int
    def __init__(self, dst: _Optional[int] = ..., rate_bps: _Optional[int] = ..., since_ns: _Optional[int] = ...) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("id", "account")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    account: str
    def __init__(self, id: _Optional[int] = ..., account: _Optional[str] = ...) -> None: ...

class Peers(_message.Message):
    __slots__ = ("addresses",)
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.ScalarMap[int, str]
    def __init__(self, addresses: _Optional[_Mapping[int, str]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("start_ns", "catch_up", "without")
    class WithoutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    START_NS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    start_ns: int
    catch_up: int
    without: _containers.ScalarMap[int, int]
    def __init__(self, start_ns: _Optional[int] = ..., catch_up: _Optional[int] = ..., without: _Optional[_Mapping[int, int]] = ...) -> None: ...

class Gone(_message.Message):
    __slots__ = ("node", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: int
    reason: str
    def __init__(self, node: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ("node", "address", "epoch", "first")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    node: int
    address: str
    epoch: int
    first: int
    def __init__(self, node: _Optional[int] = ..., address: _Optional[str] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class Evaluate(_message.Message):
    __slots__ = ("round", "nodes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    round: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, round: _Optional[int] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class ClockReading(_message.Message):
    __slots__ = ("number", "at_ns")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_NS_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_ns: int
    def __init__(self, number: _Optional[int] = ..., at_ns: _Optional[int] = ...) -> None: ...

class CoreRates(_message.Message):
    __slots__ = ("rates", "answers")
    RATES_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    rates: _containers.RepeatedCompositeFieldContainer[CoreRate]
    answers: bool
    def __init__(self, rates: _Optional[_Iterable[_Union[CoreRate, _Mapping]]] = ..., answers: _Optional[bool] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "grace_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    grace_s: float
    def __init__(self, reason: _Optional[str] = ..., grace_s: _Optional[float] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Recover(_message.Message):
    __slots__ = ("skip", "again")
    SKIP_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    skip: _containers.RepeatedScalarFieldContainer[int]
    again: _containers.RepeatedCompositeFieldContainer[Again]
    def __init__(self, skip: _Optional[_Iterable[int]] = ..., again: _Optional[_Iterable[_Union[Again, _Mapping]]] = ...) -> None: ...

class Again(_message.Message):
    __slots__ = ("dst", "round", "step", "kind")
    DST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    dst: int
    round: int
    step: int
    kind: str
    def __init__(self, dst: _Optional[int] = ..., round: _Optional[int] = ..., step: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...
