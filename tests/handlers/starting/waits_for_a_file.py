"""Is set up once the file exists that the environment names as GO: it starts when it is told to."""

import os
import time


class Handler:
    def setup(self, device):
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.05)

    def run(self, job):
        return {"done": True}
