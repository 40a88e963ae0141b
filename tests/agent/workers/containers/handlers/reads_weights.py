"""What it sees of the weights, and why it may not write there."""

import os


def handler(job):
    folder = os.environ.get("STOKER_WEIGHTS_DIR", "")
    if not folder:
        return {"folder": folder}
    try:
        open(f"{folder}/flux/more", "w").close()
    except OSError as error:
        refusal = error.strerror
    return {"folder": folder, "flux": sorted(os.listdir(f"{folder}/flux")), "refusal": refusal}
