"""A class that is set up once and counts its jobs."""


class Handler:
    def __init__(self):
        self.device = None
        self.jobs = 0

    def setup(self, device):
        self.device = device
        self.serves = f"a count of jobs\0 on {device.kind}"

    def run(self, job):
        self.jobs += 1
        return {"device": self.device.uuid, "kind": self.device.kind, "jobs": self.jobs}
