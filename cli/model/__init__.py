"""`stoker model`: the pipelines of this machine, listed, shown, run and timed without a platform"""
