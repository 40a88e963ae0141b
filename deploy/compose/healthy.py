"""The health of a container of the compose file: `healthy.py URL [CERTIFICATE]` ends with 0 where the URL
answers 200. A control that waits as a standby listens at no port; while it lives it is healthy, too."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request


def main(url: str, authority: str | None = None) -> int:
    context = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=4, context=context) as answer:
            return 0 if answer.status == 200 else 1
    except urllib.error.URLError as error:
        print(error)
        return 0 if authority and isinstance(error.reason, ConnectionRefusedError) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
