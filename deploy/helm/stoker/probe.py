"""The probe of a pod of control: `probe.py /ready [--label]` ends with 0 where control answers 200, or waits.

A control that waits as a standby listens at no port. With --label, the pod's label `stoker/role` says which
of the two it is: the service sends callers and agents to the pod that serves. It is written when it changes.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WRITTEN = Path("/tmp/role")
WITHIN_S = 6


def look(url: str) -> tuple[str, bool]:
    """Returns the role, "" where control is there and does not answer in time, and if all is well."""
    context = ssl._create_unverified_context()  # its own certificate has no name for 127.0.0.1
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S, context=context) as answer:
            return "serves", answer.status == 200
    except urllib.error.HTTPError as error:
        print(error.read().decode(errors="replace"))
        return "serves", False
    except OSError as error:  # URLError is one, and so is a timeout in the answer
        refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
        print(error)
        return ("waits", True) if refused else ("", False)


def write_label(role: str, server: str, account: Path, written: Path) -> None:
    """Writes the label, unless it was written before."""
    if written.exists() and written.read_text() == role:
        return
    request = urllib.request.Request(
        f"{server}/api/v1/namespaces/{os.environ['NAMESPACE']}/pods/{os.environ['POD']}",
        json.dumps({"metadata": {"labels": {"stoker/role": role}}}).encode(),
        {
            "Authorization": f"Bearer {(account / 'token').read_text().strip()}",
            "Content-Type": "application/merge-patch+json",
        },
        method="PATCH",
    )
    authority = account / "ca.crt"
    context = ssl.create_default_context(cafile=authority) if server.startswith("https") else None
    with urllib.request.urlopen(request, timeout=WITHIN_S, context=context):
        written.write_text(role)


def main(path: str, *options: str) -> int:
    role, well = look(f"https://127.0.0.1:8000{path}")
    if role and "--label" in options:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        write_label(role, f"https://{host}:{port}", ACCOUNT, WRITTEN)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
