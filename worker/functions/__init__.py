"""The worker for functions: gets the source of a function, and runs it in an interpreter of its own."""

from stoker.worker.functions.progress import progress

__all__ = ["progress"]
