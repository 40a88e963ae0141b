"""Measures the store's queue at several depths: `python bench/queue.py` (see queue_depth.py).

Python puts a program's folder first on its import path, so for every program in this folder, this file hides
the standard library's `queue`. If it is imported, it loads the standard library's module instead.
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
