"""Stoker feeds GPUs: a worker runtime, a node agent and a thin control plane.

The parts are folders at the root of the repository, imported as `stoker.<folder>` through the symbolic links
in this folder.
"""

__version__ = "0.2.0"
