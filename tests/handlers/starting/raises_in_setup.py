"""Raises while it is set up."""


class Handler:
    def setup(self, device):
        raise RuntimeError("the weights are not there")

    def run(self, job):
        return None
