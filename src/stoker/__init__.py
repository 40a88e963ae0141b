"""Stoker feeds GPUs: a worker runtime, a node agent and a thin control plane.

The parts live in folders at the repository's root and are imported as
`stoker.<folder>` through the links beside this file.
"""

__version__ = "0.1.0"
