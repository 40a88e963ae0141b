"""No handler: at its import it takes the worker's socket, and says there what its jobs' inputs tell it to."""

import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "rogue_worker"))
from rogue_worker import rogue

rogue(socket.socket(fileno=int(sys.argv[2])), "after setup")
