from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("protocol_version", "run_id", "scenario_hash", "node", "epoch", "callee", "renewal")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_HASH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CALLEE_FIELD_NUMBER: _ClassVar[int]
    RENEWAL_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    run_id: bytes
    scenario_hash: str
    node: int
    epoch: int
    callee: int
    renewal: int
    def __init__(self, protocol_version: _Optional[int] = ..., run_id: _Optional[bytes] = ..., scenario_hash: _Optional[str] = ..., node: _Optional[int] = ..., epoch: _Optional[int] = ..., callee: _Optional[int] = ..., renewal: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("header", "body", "stamp", "reference")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    body: bytes
    stamp: bytes
    reference: bytes
    def __init__(self, header: _Optional[bytes] = ..., body: _Optional[bytes] = ..., stamp: _Optional[bytes] = ..., reference: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("header", "total", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    total: int
    data: bytes
    def __init__(self, header: _Optional[bytes] = ..., total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("fate", "arrived_ns", "reason")
    FATE_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_NS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fate: str
    arrived_ns: int
    reason: str
    def __init__(self, fate: _Optional[str] = ..., arrived_ns: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
