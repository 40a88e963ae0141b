"""The store's queue at several depths: `python bench/queue.py`. What it measures stands in queue_depth.py.

Python puts the folder of a program at the head of its search path, so that to every program in this folder
this file stands where the standard library's `queue` should. Whoever asks for that one gets it from here.
"""

import importlib.util
import sys
import sysconfig
from pathlib import Path

if __name__ == "__main__":
    from queue_depth import main

    main()
else:
    _file = Path(sysconfig.get_path("stdlib")) / "queue.py"
    _spec = importlib.util.spec_from_file_location(__name__, _file)
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[__name__] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
