"""The store's door: everything that may be asked of the database.

Plain synchronous functions on a `Conn`, run inside a transaction by control.commit; time is a parameter.
The guards of every change of a job's state come from control.job.MOVES.
"""

from stoker.control.store_endpoints import get_endpoint, list_endpoints, put_endpoint, remove_endpoint
from stoker.control.store_jobs import advance, cancel, chunks, claim, stream_cursor, submit, view
from stoker.control.store_nodes import (
    close_session,
    lost_nodes,
    open_session,
    reconcile,
    requeue_node,
    take_over,
    touch_node,
)
from stoker.control.store_open import DEFAULT_ACCOUNT, Conn, Store, StoreError, open_store
from stoker.control.store_reports import ARTIFACT_LIFE_S, apply_reports
from stoker.control.store_sweep import (
    expire,
    expired_artifacts,
    forget_artifacts,
    forget_leftovers,
    job_spans,
    leftovers,
    note_leftovers,
    noted,
    queue_sample,
    read_counters,
)

__all__ = [
    "ARTIFACT_LIFE_S",
    "DEFAULT_ACCOUNT",
    "Conn",
    "Store",
    "StoreError",
    "advance",
    "apply_reports",
    "cancel",
    "chunks",
    "claim",
    "close_session",
    "expire",
    "expired_artifacts",
    "forget_artifacts",
    "forget_leftovers",
    "get_endpoint",
    "job_spans",
    "leftovers",
    "list_endpoints",
    "lost_nodes",
    "note_leftovers",
    "noted",
    "open_session",
    "open_store",
    "put_endpoint",
    "queue_sample",
    "read_counters",
    "reconcile",
    "remove_endpoint",
    "requeue_node",
    "stream_cursor",
    "submit",
    "take_over",
    "touch_node",
    "view",
]
