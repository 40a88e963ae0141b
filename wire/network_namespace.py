"""Names the network namespace that this process is in: where two processes have the same name for it, the
loopback of one is that of the other.

The address of a connection does not show that. One that was forwarded, as by `ssh -R`, comes from loopback,
and its other end is elsewhere.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = "/proc/self/ns/net"


def network_namespace() -> str:
    """Returns the network namespace of this boot of the kernel; a digest, which tells nothing else of the
    host. Empty where the kernel does not say."""
    try:
        boot, namespace = _BOOT.read_text(encoding="ascii").strip(), os.readlink(_NAMESPACE)
    except OSError:
        return ""
    return sha256(f"{boot} {namespace}".encode()).hexdigest()
