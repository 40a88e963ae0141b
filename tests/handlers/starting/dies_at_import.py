"""Ends its process while it is imported, without a word to the runtime."""

import os
import sys

print("dies_at_import: no licence found", file=sys.stderr, flush=True)
os._exit(3)
