from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ASKING: _ClassVar[Phase]
    READY: _ClassVar[Phase]
    RUNNING: _ClassVar[Phase]
    FINISHED: _ClassVar[Phase]
ASKING: Phase
READY: Phase
RUNNING: Phase
FINISHED: Phase

class Call(_message.Message):
    __slots__ = ("protocol_version", "run_id", "scenario_hash", "node", "epoch", "callee", "phase", "versions", "owes")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_HASH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CALLEE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    OWES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    run_id: bytes
    scenario_hash: str
    node: int
    epoch: int
    callee: int
    phase: Phase
    versions: _containers.ScalarMap[str, str]
    owes: bool
    def __init__(self, protocol_version: _Optional[int] = ..., run_id: _Optional[bytes] = ..., scenario_hash: _Optional[str] = ..., node: _Optional[int] = ..., epoch: _Optional[int] = ..., callee: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., versions: _Optional[_Mapping[str, str]] = ..., owes: _Optional[bool] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("refusal", "run_id", "phase", "now_ns", "round", "missing", "known_epoch", "versions")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    run_id: bytes
    phase: Phase
    now_ns: int
    round: int
    missing: _containers.RepeatedScalarFieldContainer[int]
    known_epoch: int
    versions: _containers.ScalarMap[str, str]
    def __init__(self, refusal: _Optional[str] = ..., run_id: _Optional[bytes] = ..., phase: _Optional[_Union[Phase, str]] = ..., now_ns: _Optional[int] = ..., round: _Optional[int] = ..., missing: _Optional[_Iterable[int]] = ..., known_epoch: _Optional[int] = ..., versions: _Optional[_Mapping[str, str]] = ...) -> None: ...
