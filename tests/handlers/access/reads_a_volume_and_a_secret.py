"""Answers with what lies on its volume and a digest of its secret, which it prints, too."""

import hashlib
import os
import pathlib


def handler(job):
    volume = pathlib.Path(os.environ["STOKER_VOLUME_PATH"])
    login = os.environ["DATABASE"]
    print("logged in with", login)
    (volume / "written").write_text("by a worker")
    return {"kept": (volume / "kept").read_text()[:4], "login": hashlib.sha256(login.encode()).hexdigest()}
