"""The same on threads, from a method."""

from async_chooses_slots import NEXT, modifier


class Handler:
    def run(self, job):
        NEXT[:] = job.input["slots"]
        return job.input

    def concurrency_modifier(self, current):
        return modifier(current)
