"""Messages between an agent and the control plane, as frozen records.

Both sides and the simulation use these classes. Protocol Buffers appear only in the gRPC adapters, through
`wire.codec`. Payloads (`input`, `output`, `value`) are JSON text in bytes, so that no part between the
caller and the handler parses what it need not read.

    agent                                   control
      Hello  ------------------------------>            first message; or Refusal and the end
             <------------------------------  Welcome   session number, what to keep, what to stop
             <------------------------------  Desired   which workers shall exist (idempotent)
             <------------------------------  Assign, Cancel, Yield (idempotent by job and attempt)
      Report 7, 8, 9, Beat  --------------->
             <------------------------------  Ack 9     everything up to 9 is committed
      SignAsk 3  -------------------------->            sign these requests to the object store
             <------------------------------  SignAnswer 3
      KeptAsk 4  -------------------------->            give back chunks that the attempt's save covers
             <------------------------------  KeptPage 4
      the digest of a worker's source  ---->
             <------------------------------  SourceAnswer
      a request for a certificate  -------->
             <------------------------------  CertificateAnswer
      draining  --------------------------->            assign nothing new: this node is about to leave
             <------------------------------  stopping  this control process ends: reconnect soon

    on a second stream, per session
      LogLines  --------------------------->            first the sender, then lines of what is followed
             <------------------------------  LogWanted which attempts and workers are followed now

    on a third stream, if Welcome asks for one
      TunnelPieces  <---------------------->            first the sender, then connections to http workers
"""

from stoker.wire.messages.from_agent import (
    CASE_MAX,
    WANTED_MOST,
    Artifact,
    Beat,
    Chunk,
    DirectGateway,
    FromAgent,
    GatewayAddress,
    HeldAttempt,
    HeldPod,
    HeldWorker,
    Hello,
    KeptAsk,
    Outcome,
    PodState,
    PortMapping,
    Progress,
    Refused,
    Released,
    Report,
    ReportBody,
    Save,
    SignAsk,
    Span,
    StartStage,
    Uploading,
    Usage,
    VolumeUsed,
    Wanted,
    WorkerState,
)
from stoker.wire.messages.from_control import (
    Ack,
    Assign,
    Cancel,
    CertificateAnswer,
    Desired,
    FromControl,
    Grant,
    KeptPage,
    PodPort,
    PodSpec,
    Price,
    Refusal,
    RegistryAuth,
    Saved,
    SignAnswer,
    Signed,
    Source,
    SourceAnswer,
    VolumeSpec,
    Welcome,
    WorkerLimits,
    WorkerSpec,
    Yield,
)
from stoker.wire.messages.logs import (
    LogLines,
    LogWanted,
    StreamHello,
    log_of_worker,
)
from stoker.wire.messages.shared import (
    PROTOCOL,
    AttemptKey,
    AttemptPhase,
    Device,
    DeviceKind,
    DeviceSample,
    End,
    PodPhase,
    Ref,
    WorkerPhase,
    accepts_protocol,
)
from stoker.wire.messages.tunnels import (
    Piece,
    TunnelPieces,
)
from stoker.wire.messages.weights import (
    LockedWeights,
    WeightsFile,
)
