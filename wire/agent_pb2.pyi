from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromAgent(_message.Message):
    __slots__ = ("hello", "beat", "reports", "fragment", "last_fragment", "draining", "asks", "source_asks", "certificate_ask", "kept_asks")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    LAST_FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ASKS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ASK_FIELD_NUMBER: _ClassVar[int]
    KEPT_ASKS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    reports: _containers.RepeatedCompositeFieldContainer[Report]
    fragment: bytes
    last_fragment: bool
    draining: bool
    asks: _containers.RepeatedCompositeFieldContainer[SignAsk]
    source_asks: _containers.RepeatedScalarFieldContainer[str]
    certificate_ask: bytes
    kept_asks: _containers.RepeatedCompositeFieldContainer[KeptAsk]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., reports: _Optional[_Iterable[_Union[Report, _Mapping]]] = ..., fragment: _Optional[bytes] = ..., last_fragment: _Optional[bool] = ..., draining: _Optional[bool] = ..., asks: _Optional[_Iterable[_Union[SignAsk, _Mapping]]] = ..., source_asks: _Optional[_Iterable[str]] = ..., certificate_ask: _Optional[bytes] = ..., kept_asks: _Optional[_Iterable[_Union[KeptAsk, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "node", "name", "boot", "agent_version", "devices", "facts", "workers", "attempts", "first_unacked", "samples", "pods", "gateway", "jobs_ahead", "direct", "tunnels", "saves", "yields", "credential")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNACKED_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    JOBS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    TUNNELS_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    node: str
    name: str
    boot: str
    agent_version: str
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    facts: _containers.ScalarMap[str, str]
    workers: _containers.RepeatedCompositeFieldContainer[HeldWorker]
    attempts: _containers.RepeatedCompositeFieldContainer[HeldAttempt]
    first_unacked: int
    samples: _containers.RepeatedCompositeFieldContainer[DeviceSample]
    pods: _containers.RepeatedCompositeFieldContainer[HeldPod]
    gateway: GatewayAddress
    jobs_ahead: int
    direct: DirectGateway
    tunnels: bool
    saves: bool
    yields: bool
    credential: str
    def __init__(self, protocol: _Optional[int] = ..., node: _Optional[str] = ..., name: _Optional[str] = ..., boot: _Optional[str] = ..., agent_version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., facts: _Optional[_Mapping[str, str]] = ..., workers: _Optional[_Iterable[_Union[HeldWorker, _Mapping]]] = ..., attempts: _Optional[_Iterable[_Union[HeldAttempt, _Mapping]]] = ..., first_unacked: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[DeviceSample, _Mapping]]] = ..., pods: _Optional[_Iterable[_Union[HeldPod, _Mapping]]] = ..., gateway: _Optional[_Union[GatewayAddress, _Mapping]] = ..., jobs_ahead: _Optional[int] = ..., direct: _Optional[_Union[DirectGateway, _Mapping]] = ..., tunnels: _Optional[bool] = ..., saves: _Optional[bool] = ..., yields: _Optional[bool] = ..., credential: _Optional[str] = ...) -> None: ...

class GatewayAddress(_message.Message):
    __slots__ = ("port", "token", "namespace")
    PORT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    port: int
    token: str
    namespace: str
    def __init__(self, port: _Optional[int] = ..., token: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class DirectGateway(_message.Message):
    __slots__ = ("host", "port", "token", "certificate")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    token: str
    certificate: bytes
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., token: _Optional[str] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("uuid", "kind", "name", "index", "parent", "memory_total", "driver", "unified_memory")
    UUID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    UNIFIED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    kind: str
    name: str
    index: int
    parent: str
    memory_total: int
    driver: str
    unified_memory: bool
    def __init__(self, uuid: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., index: _Optional[int] = ..., parent: _Optional[str] = ..., memory_total: _Optional[int] = ..., driver: _Optional[str] = ..., unified_memory: _Optional[bool] = ...) -> None: ...

class DeviceSample(_message.Message):
    __slots__ = ("uuid", "memory_used", "utilisation", "temperature", "power", "ecc_uncorrected", "ill")
    UUID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ECC_UNCORRECTED_FIELD_NUMBER: _ClassVar[int]
    ILL_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    memory_used: int
    utilisation: int
    temperature: int
    power: float
    ecc_uncorrected: int
    ill: str
    def __init__(self, uuid: _Optional[str] = ..., memory_used: _Optional[int] = ..., utilisation: _Optional[int] = ..., temperature: _Optional[int] = ..., power: _Optional[float] = ..., ecc_uncorrected: _Optional[int] = ..., ill: _Optional[str] = ...) -> None: ...

class HeldWorker(_message.Message):
    __slots__ = ("worker", "endpoint", "version", "state", "devices", "slots", "serves", "waits_for", "cold_start")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SERVES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    COLD_START_FIELD_NUMBER: _ClassVar[int]
    worker: str
    endpoint: str
    version: int
    state: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    serves: str
    waits_for: str
    cold_start: _containers.RepeatedCompositeFieldContainer[StartStage]
    def __init__(self, worker: _Optional[str] = ..., endpoint: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., serves: _Optional[str] = ..., waits_for: _Optional[str] = ..., cold_start: _Optional[_Iterable[_Union[StartStage, _Mapping]]] = ...) -> None: ...

class StartStage(_message.Message):
    __slots__ = ("name", "took_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    took_ms: int
    def __init__(self, name: _Optional[str] = ..., took_ms: _Optional[int] = ...) -> None: ...

class HeldAttempt(_message.Message):
    __slots__ = ("job", "attempt", "worker", "phase")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: str
    phase: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., phase: _Optional[str] = ...) -> None: ...

class HeldPod(_message.Message):
    __slots__ = ("pod", "version", "restarts", "state")
    POD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    pod: str
    version: int
    restarts: int
    state: str
    def __init__(self, pod: _Optional[str] = ..., version: _Optional[int] = ..., restarts: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("number", "samples", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    samples: _containers.RepeatedCompositeFieldContainer[DeviceSample]
    facts: _containers.ScalarMap[str, str]
    def __init__(self, number: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[DeviceSample, _Mapping]]] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("number", "progress", "chunk", "uploading", "outcome", "released", "worker_state", "refused", "pod_state", "volume_used", "usage", "save")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    UPLOADING_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    WORKER_STATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    POD_STATE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_USED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    number: int
    progress: Progress
    chunk: Chunk
    uploading: Uploading
    outcome: Outcome
    released: Released
    worker_state: WorkerState
    refused: Refused
    pod_state: PodState
    volume_used: VolumeUsed
    usage: Usage
    save: Save
    def __init__(self, number: _Optional[int] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., uploading: _Optional[_Union[Uploading, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., worker_state: _Optional[_Union[WorkerState, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., pod_state: _Optional[_Union[PodState, _Mapping]] = ..., volume_used: _Optional[_Union[VolumeUsed, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("job", "attempt", "value")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    value: bytes
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("job", "attempt", "n", "value", "ref")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    n: int
    value: bytes
    ref: Ref
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., n: _Optional[int] = ..., value: _Optional[bytes] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("job", "attempt", "n", "upto", "state", "ref", "content")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    n: int
    upto: int
    state: bytes
    ref: Ref
    content: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., n: _Optional[int] = ..., upto: _Optional[int] = ..., state: _Optional[bytes] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ..., content: _Optional[str] = ...) -> None: ...

class Uploading(_message.Message):
    __slots__ = ("job", "attempt", "why")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    why: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("job", "attempt")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("job", "attempt", "worker", "end", "output", "output_ref", "error", "retryable", "wait_ms", "execution_ms", "spans", "artifacts", "log", "log_first", "log_at_ms", "save_gone", "case")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_REF_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_MS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    LOG_FIRST_FIELD_NUMBER: _ClassVar[int]
    LOG_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SAVE_GONE_FIELD_NUMBER: _ClassVar[int]
    CASE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: str
    end: str
    output: bytes
    output_ref: Ref
    error: str
    retryable: bool
    wait_ms: int
    execution_ms: int
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    log: _containers.RepeatedScalarFieldContainer[str]
    log_first: int
    log_at_ms: _containers.RepeatedScalarFieldContainer[int]
    save_gone: bool
    case: bytes
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., end: _Optional[str] = ..., output: _Optional[bytes] = ..., output_ref: _Optional[_Union[Ref, _Mapping]] = ..., error: _Optional[str] = ..., retryable: _Optional[bool] = ..., wait_ms: _Optional[int] = ..., execution_ms: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., log: _Optional[_Iterable[str]] = ..., log_first: _Optional[int] = ..., log_at_ms: _Optional[_Iterable[int]] = ..., save_gone: _Optional[bool] = ..., case: _Optional[bytes] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("kind", "unit", "quantity", "nano_usd")
    KIND_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    NANO_USD_FIELD_NUMBER: _ClassVar[int]
    kind: str
    unit: str
    quantity: int
    nano_usd: int
    def __init__(self, kind: _Optional[str] = ..., unit: _Optional[str] = ..., quantity: _Optional[int] = ..., nano_usd: _Optional[int] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("key", "size", "sha256", "media_type")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    key: str
    size: int
    sha256: str
    media_type: str
    def __init__(self, key: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., media_type: _Optional[str] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ("key", "size", "sha256")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    key: str
    size: int
    sha256: str
    def __init__(self, key: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class WorkerState(_message.Message):
    __slots__ = ("worker", "endpoint", "version", "state", "reason", "log_tail", "slots", "serves", "waits_for", "cold_start")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SERVES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    COLD_START_FIELD_NUMBER: _ClassVar[int]
    worker: str
    endpoint: str
    version: int
    state: str
    reason: str
    log_tail: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    serves: str
    waits_for: str
    cold_start: _containers.RepeatedCompositeFieldContainer[StartStage]
    def __init__(self, worker: _Optional[str] = ..., endpoint: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., log_tail: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., serves: _Optional[str] = ..., waits_for: _Optional[str] = ..., cold_start: _Optional[_Iterable[_Union[StartStage, _Mapping]]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("job", "attempt", "reason", "at_once")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    reason: str
    at_once: bool
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., at_once: _Optional[bool] = ...) -> None: ...

class PortMapping(_message.Message):
    __slots__ = ("private", "public", "protocol")
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    private: int
    public: int
    protocol: str
    def __init__(self, private: _Optional[int] = ..., public: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class PodState(_message.Message):
    __slots__ = ("pod", "version", "restarts", "state", "reason", "ports", "exit_code", "started_ms", "log_tail")
    POD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    pod: str
    version: int
    restarts: int
    state: str
    reason: str
    ports: _containers.RepeatedCompositeFieldContainer[PortMapping]
    exit_code: int
    started_ms: int
    log_tail: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pod: _Optional[str] = ..., version: _Optional[int] = ..., restarts: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortMapping, _Mapping]]] = ..., exit_code: _Optional[int] = ..., started_ms: _Optional[int] = ..., log_tail: _Optional[_Iterable[str]] = ...) -> None: ...

class VolumeUsed(_message.Message):
    __slots__ = ("volume", "used_bytes", "gone")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    volume: str
    used_bytes: int
    gone: bool
    def __init__(self, volume: _Optional[str] = ..., used_bytes: _Optional[int] = ..., gone: _Optional[bool] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("owner", "boot", "n", "kind", "state", "began_ms", "ended_ms", "endpoint", "version", "devices")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    owner: str
    boot: str
    n: int
    kind: str
    state: str
    began_ms: int
    ended_ms: int
    endpoint: str
    version: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, owner: _Optional[str] = ..., boot: _Optional[str] = ..., n: _Optional[int] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., endpoint: _Optional[str] = ..., version: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...

class FromControl(_message.Message):
    __slots__ = ("welcome", "refusal", "desired", "ack", "assigns", "cancels", "fragment", "last_fragment", "stopping", "answers", "credential", "sources", "yields", "certificate", "kept")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ASSIGNS_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    LAST_FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    refusal: Refusal
    desired: Desired
    ack: Ack
    assigns: _containers.RepeatedCompositeFieldContainer[Assign]
    cancels: _containers.RepeatedCompositeFieldContainer[Cancel]
    fragment: bytes
    last_fragment: bool
    stopping: bool
    answers: _containers.RepeatedCompositeFieldContainer[SignAnswer]
    credential: str
    sources: _containers.RepeatedCompositeFieldContainer[SourceAnswer]
    yields: _containers.RepeatedCompositeFieldContainer[Yield]
    certificate: CertificateAnswer
    kept: KeptPage
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., desired: _Optional[_Union[Desired, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., assigns: _Optional[_Iterable[_Union[Assign, _Mapping]]] = ..., cancels: _Optional[_Iterable[_Union[Cancel, _Mapping]]] = ..., fragment: _Optional[bytes] = ..., last_fragment: _Optional[bool] = ..., stopping: _Optional[bool] = ..., answers: _Optional[_Iterable[_Union[SignAnswer, _Mapping]]] = ..., credential: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourceAnswer, _Mapping]]] = ..., yields: _Optional[_Iterable[_Union[Yield, _Mapping]]] = ..., certificate: _Optional[_Union[CertificateAnswer, _Mapping]] = ..., kept: _Optional[_Union[KeptPage, _Mapping]] = ...) -> None: ...

class CertificateAnswer(_message.Message):
    __slots__ = ("certificate", "authorities", "refusal")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authorities: bytes
    refusal: str
    def __init__(self, certificate: _Optional[bytes] = ..., authorities: _Optional[bytes] = ..., refusal: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session", "beat_s", "lease_s", "keep", "stop", "tunnel", "saves", "yields", "certifies", "kept")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BEAT_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    CERTIFIES_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    session: int
    beat_s: float
    lease_s: float
    keep: _containers.RepeatedCompositeFieldContainer[AttemptKey]
    stop: _containers.RepeatedCompositeFieldContainer[AttemptKey]
    tunnel: bool
    saves: bool
    yields: bool
    certifies: bool
    kept: bool
    def __init__(self, session: _Optional[int] = ..., beat_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., keep: _Optional[_Iterable[_Union[AttemptKey, _Mapping]]] = ..., stop: _Optional[_Iterable[_Union[AttemptKey, _Mapping]]] = ..., tunnel: _Optional[bool] = ..., saves: _Optional[bool] = ..., yields: _Optional[bool] = ..., certifies: _Optional[bool] = ..., kept: _Optional[bool] = ...) -> None: ...

class AttemptKey(_message.Message):
    __slots__ = ("job", "attempt")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Desired(_message.Message):
    __slots__ = ("revision", "workers", "pods", "volumes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerSpec]
    pods: _containers.RepeatedCompositeFieldContainer[PodSpec]
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeSpec]
    def __init__(self, revision: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerSpec, _Mapping]]] = ..., pods: _Optional[_Iterable[_Union[PodSpec, _Mapping]]] = ..., volumes: _Optional[_Iterable[_Union[VolumeSpec, _Mapping]]] = ...) -> None: ...

class PodPort(_message.Message):
    __slots__ = ("private", "protocol")
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    private: int
    protocol: str
    def __init__(self, private: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class PodSpec(_message.Message):
    __slots__ = ("pod", "version", "wish", "image", "restarts", "registry", "env", "entrypoint", "command", "devices", "ports", "limits", "disk_bytes", "volume", "volume_path", "volume_bytes", "hidden")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WISH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    ENTRYPOINT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    VOLUME_PATH_FIELD_NUMBER: _ClassVar[int]
    VOLUME_BYTES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    pod: str
    version: int
    wish: str
    image: str
    restarts: int
    registry: RegistryAuth
    env: _containers.ScalarMap[str, str]
    entrypoint: _containers.RepeatedScalarFieldContainer[str]
    command: _containers.RepeatedScalarFieldContainer[str]
    devices: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedCompositeFieldContainer[PodPort]
    limits: WorkerLimits
    disk_bytes: int
    volume: str
    volume_path: str
    volume_bytes: int
    hidden: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pod: _Optional[str] = ..., version: _Optional[int] = ..., wish: _Optional[str] = ..., image: _Optional[str] = ..., restarts: _Optional[int] = ..., registry: _Optional[_Union[RegistryAuth, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., entrypoint: _Optional[_Iterable[str]] = ..., command: _Optional[_Iterable[str]] = ..., devices: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[_Union[PodPort, _Mapping]]] = ..., limits: _Optional[_Union[WorkerLimits, _Mapping]] = ..., disk_bytes: _Optional[int] = ..., volume: _Optional[str] = ..., volume_path: _Optional[str] = ..., volume_bytes: _Optional[int] = ..., hidden: _Optional[_Iterable[str]] = ...) -> None: ...

class VolumeSpec(_message.Message):
    __slots__ = ("volume", "size_bytes", "gone")
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    volume: str
    size_bytes: int
    gone: bool
    def __init__(self, volume: _Optional[str] = ..., size_bytes: _Optional[int] = ..., gone: _Optional[bool] = ...) -> None: ...

class WorkerSpec(_message.Message):
    __slots__ = ("worker", "endpoint", "version", "handler", "devices", "env", "concurrency", "start_timeout_s", "kind", "command", "preload", "image", "registry", "volume", "limits", "max_jobs", "max_growth_bytes", "share", "entrypoint", "hidden", "weights", "source")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MAX_JOBS_FIELD_NUMBER: _ClassVar[int]
    MAX_GROWTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    ENTRYPOINT_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    endpoint: str
    version: int
    handler: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    concurrency: int
    start_timeout_s: float
    kind: str
    command: _containers.RepeatedScalarFieldContainer[str]
    preload: _containers.RepeatedScalarFieldContainer[str]
    image: str
    registry: RegistryAuth
    volume: str
    limits: WorkerLimits
    max_jobs: int
    max_growth_bytes: int
    share: float
    entrypoint: _containers.RepeatedScalarFieldContainer[str]
    hidden: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.RepeatedCompositeFieldContainer[LockedWeights]
    source: Source
    def __init__(self, worker: _Optional[str] = ..., endpoint: _Optional[str] = ..., version: _Optional[int] = ..., handler: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., concurrency: _Optional[int] = ..., start_timeout_s: _Optional[float] = ..., kind: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., preload: _Optional[_Iterable[str]] = ..., image: _Optional[str] = ..., registry: _Optional[_Union[RegistryAuth, _Mapping]] = ..., volume: _Optional[str] = ..., limits: _Optional[_Union[WorkerLimits, _Mapping]] = ..., max_jobs: _Optional[int] = ..., max_growth_bytes: _Optional[int] = ..., share: _Optional[float] = ..., entrypoint: _Optional[_Iterable[str]] = ..., hidden: _Optional[_Iterable[str]] = ..., weights: _Optional[_Iterable[_Union[LockedWeights, _Mapping]]] = ..., source: _Optional[_Union[Source, _Mapping]] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("folder", "digest", "refusal")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    folder: str
    digest: str
    refusal: str
    def __init__(self, folder: _Optional[str] = ..., digest: _Optional[str] = ..., refusal: _Optional[str] = ...) -> None: ...

class SourceAnswer(_message.Message):
    __slots__ = ("digest", "archive", "refusal")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    digest: str
    archive: bytes
    refusal: str
    def __init__(self, digest: _Optional[str] = ..., archive: _Optional[bytes] = ..., refusal: _Optional[str] = ...) -> None: ...

class LockedWeights(_message.Message):
    __slots__ = ("name", "source", "commit", "files")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    commit: str
    files: _containers.RepeatedCompositeFieldContainer[WeightsFile]
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., commit: _Optional[str] = ..., files: _Optional[_Iterable[_Union[WeightsFile, _Mapping]]] = ...) -> None: ...

class WeightsFile(_message.Message):
    __slots__ = ("path", "size", "sha256", "source", "name", "commit")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    path: str
    size: int
    sha256: str
    source: str
    name: str
    commit: str
    def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., source: _Optional[str] = ..., name: _Optional[str] = ..., commit: _Optional[str] = ...) -> None: ...

class RegistryAuth(_message.Message):
    __slots__ = ("username", "password")
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    username: str
    password: str
    def __init__(self, username: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class WorkerLimits(_message.Message):
    __slots__ = ("memory_bytes", "cpus", "pids", "files")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    cpus: float
    pids: int
    files: int
    def __init__(self, memory_bytes: _Optional[int] = ..., cpus: _Optional[float] = ..., pids: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("report", "beat")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    report: int
    beat: int
    def __init__(self, report: _Optional[int] = ..., beat: _Optional[int] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("job", "attempt", "worker", "input", "input_ref", "execution_timeout_ms", "ttl_s", "grant", "prices", "files_grant", "private_inputs", "traceparent", "saved", "keeps_case", "stop_after")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_REF_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    FILES_GRANT_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_INPUTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    KEEPS_CASE_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: str
    input: bytes
    input_ref: Ref
    execution_timeout_ms: int
    ttl_s: float
    grant: Grant
    prices: _containers.RepeatedCompositeFieldContainer[Price]
    files_grant: Grant
    private_inputs: bool
    traceparent: str
    saved: Saved
    keeps_case: bool
    stop_after: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., input: _Optional[bytes] = ..., input_ref: _Optional[_Union[Ref, _Mapping]] = ..., execution_timeout_ms: _Optional[int] = ..., ttl_s: _Optional[float] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., prices: _Optional[_Iterable[_Union[Price, _Mapping]]] = ..., files_grant: _Optional[_Union[Grant, _Mapping]] = ..., private_inputs: _Optional[bool] = ..., traceparent: _Optional[str] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., keeps_case: _Optional[bool] = ..., stop_after: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("upto", "state", "ref", "content")
    UPTO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    upto: int
    state: bytes
    ref: Ref
    content: str
    def __init__(self, upto: _Optional[int] = ..., state: _Optional[bytes] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ..., content: _Optional[str] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("verb", "key", "size", "media_type", "name", "sha256", "upload", "part")
    VERB_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    verb: str
    key: str
    size: int
    media_type: str
    name: str
    sha256: str
    upload: str
    part: int
    def __init__(self, verb: _Optional[str] = ..., key: _Optional[str] = ..., size: _Optional[int] = ..., media_type: _Optional[str] = ..., name: _Optional[str] = ..., sha256: _Optional[str] = ..., upload: _Optional[str] = ..., part: _Optional[int] = ...) -> None: ...

class SignAsk(_message.Message):
    __slots__ = ("number", "job", "attempt", "wanted")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    number: int
    job: str
    attempt: int
    wanted: _containers.RepeatedCompositeFieldContainer[Wanted]
    def __init__(self, number: _Optional[int] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., wanted: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ...) -> None: ...

class KeptAsk(_message.Message):
    __slots__ = ("number", "job", "attempt", "first", "upto")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    number: int
    job: str
    attempt: int
    first: int
    upto: int
    def __init__(self, number: _Optional[int] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., first: _Optional[int] = ..., upto: _Optional[int] = ...) -> None: ...

class KeptPage(_message.Message):
    __slots__ = ("number", "refusal", "retryable", "values", "ref")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    number: int
    refusal: str
    retryable: bool
    values: _containers.RepeatedScalarFieldContainer[bytes]
    ref: Ref
    def __init__(self, number: _Optional[int] = ..., refusal: _Optional[str] = ..., retryable: _Optional[bool] = ..., values: _Optional[_Iterable[bytes]] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ...) -> None: ...

class Signed(_message.Message):
    __slots__ = ("url", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    url: str
    headers: _containers.ScalarMap[str, str]
    def __init__(self, url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SignAnswer(_message.Message):
    __slots__ = ("number", "refusal", "retryable", "signed")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    number: int
    refusal: str
    retryable: bool
    signed: _containers.RepeatedCompositeFieldContainer[Signed]
    def __init__(self, number: _Optional[int] = ..., refusal: _Optional[str] = ..., retryable: _Optional[bool] = ..., signed: _Optional[_Iterable[_Union[Signed, _Mapping]]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("endpoint_url", "public_endpoint", "region", "bucket", "prefix", "access_id", "access_secret", "guarded", "account", "job", "attempt", "key", "endpoint")
    ENDPOINT_URL_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ACCESS_ID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_SECRET_FIELD_NUMBER: _ClassVar[int]
    GUARDED_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    prefix: str
    access_id: str
    access_secret: str
    guarded: bool
    account: str
    job: str
    attempt: int
    key: str
    endpoint: str
    def __init__(self, endpoint_url: _Optional[str] = ..., public_endpoint: _Optional[str] = ..., region: _Optional[str] = ..., bucket: _Optional[str] = ..., prefix: _Optional[str] = ..., access_id: _Optional[str] = ..., access_secret: _Optional[str] = ..., guarded: _Optional[bool] = ..., account: _Optional[str] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., key: _Optional[str] = ..., endpoint: _Optional[str] = ...) -> None: ...

class Price(_message.Message):
    __slots__ = ("metric", "nano_usd")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    NANO_USD_FIELD_NUMBER: _ClassVar[int]
    metric: str
    nano_usd: int
    def __init__(self, metric: _Optional[str] = ..., nano_usd: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("job", "attempt", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    reason: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Yield(_message.Message):
    __slots__ = ("job", "attempt", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    reason: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class LogLines(_message.Message):
    __slots__ = ("hello", "job", "attempt", "first", "lines", "over", "at_ms", "more")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    hello: StreamHello
    job: str
    attempt: int
    first: int
    lines: _containers.RepeatedScalarFieldContainer[str]
    over: bool
    at_ms: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    def __init__(self, hello: _Optional[_Union[StreamHello, _Mapping]] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., first: _Optional[int] = ..., lines: _Optional[_Iterable[str]] = ..., over: _Optional[bool] = ..., at_ms: _Optional[_Iterable[int]] = ..., more: _Optional[bool] = ...) -> None: ...

class StreamHello(_message.Message):
    __slots__ = ("node", "session")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    node: str
    session: int
    def __init__(self, node: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class LogWanted(_message.Message):
    __slots__ = ("attempts",)
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptKey]
    def __init__(self, attempts: _Optional[_Iterable[_Union[AttemptKey, _Mapping]]] = ...) -> None: ...

class TunnelPieces(_message.Message):
    __slots__ = ("hello", "pieces")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    hello: StreamHello
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    def __init__(self, hello: _Optional[_Union[StreamHello, _Mapping]] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("connection", "event", "data", "taken_bytes")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    connection: int
    event: str
    data: bytes
    taken_bytes: int
    def __init__(self, connection: _Optional[int] = ..., event: _Optional[str] = ..., data: _Optional[bytes] = ..., taken_bytes: _Optional[int] = ...) -> None: ...
