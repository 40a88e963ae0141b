"""The store's door: everything that may be asked of the database.

Plain synchronous functions on a `Conn`, run inside a transaction by control.commit; time is a parameter.
The guards of every change of a job's state come from control.job.MOVES.
"""

from stoker.control.store.abandoned import forget_leftovers, leftovers, note_leftovers, noted
from stoker.control.store.audit import begin_audit, end_audit, list_audit, sweep_audit
from stoker.control.store.bills import BillQuery, bill_pods, bill_volumes, read_bills, spaces_due
from stoker.control.store.endpoints import (
    deleted_endpoints,
    get_endpoint,
    list_endpoints,
    list_runs,
    put_endpoint,
    remove_endpoint,
)
from stoker.control.store.jobs import claim, submit
from stoker.control.store.named_secrets import (
    NamedSecret,
    list_secrets,
    put_secret,
    read_secrets,
    remove_secret,
)
from stoker.control.store.nodes import (
    close_session,
    drop_attempt,
    lost_nodes,
    open_session,
    reconcile,
    requeue_node,
    take_over,
    touch_node,
)
from stoker.control.store.opening import DEFAULT_ACCOUNT, Conn, Store, StoreError, open_store
from stoker.control.store.orders import cancel, cancel_all, newest, purge, retry, shorten
from stoker.control.store.pods import add_pod, get_pod, list_pods, put_pod, reconcile_pods, want
from stoker.control.store.registries import (
    Registry,
    add_registry,
    list_registries,
    registry_login,
    remove_registry,
)
from stoker.control.store.reports import ARTIFACT_LIFE_S, apply_reports
from stoker.control.store.samples import count_jobs, job_spans, queue_sample, read_counters
from stoker.control.store.sweep import expire, expired_artifacts, forget_artifacts
from stoker.control.store.templates import (
    get_template,
    list_templates,
    named_template,
    put_template,
    remove_template,
)
from stoker.control.store.usage import USAGE_LIFE_S, forget_usage, usage_due
from stoker.control.store.users import User, users_of
from stoker.control.store.views import advance, chunks, job_logs, last_lines, list_jobs, stream_cursor, view
from stoker.control.store.volumes import (
    add_volume,
    delete_volume,
    forget_volumes,
    get_volume,
    list_volumes,
    put_volume,
)
from stoker.control.store.webhooks import (
    due_webhook,
    next_webhook_at,
    webhook_later,
    webhook_secret,
    webhook_tried,
)

__all__ = [
    "ARTIFACT_LIFE_S",
    "DEFAULT_ACCOUNT",
    "USAGE_LIFE_S",
    "BillQuery",
    "Conn",
    "NamedSecret",
    "Registry",
    "Store",
    "StoreError",
    "User",
    "add_pod",
    "add_registry",
    "add_volume",
    "advance",
    "apply_reports",
    "begin_audit",
    "bill_pods",
    "bill_volumes",
    "cancel",
    "cancel_all",
    "chunks",
    "claim",
    "close_session",
    "count_jobs",
    "delete_volume",
    "deleted_endpoints",
    "drop_attempt",
    "due_webhook",
    "end_audit",
    "expire",
    "expired_artifacts",
    "forget_artifacts",
    "forget_leftovers",
    "forget_usage",
    "forget_volumes",
    "get_endpoint",
    "get_pod",
    "get_template",
    "get_volume",
    "job_logs",
    "job_spans",
    "last_lines",
    "leftovers",
    "list_audit",
    "list_endpoints",
    "list_jobs",
    "list_pods",
    "list_registries",
    "list_runs",
    "list_secrets",
    "list_templates",
    "list_volumes",
    "lost_nodes",
    "named_template",
    "newest",
    "next_webhook_at",
    "note_leftovers",
    "noted",
    "open_session",
    "open_store",
    "purge",
    "put_endpoint",
    "put_pod",
    "put_secret",
    "put_template",
    "put_volume",
    "queue_sample",
    "read_bills",
    "read_counters",
    "read_secrets",
    "reconcile",
    "reconcile_pods",
    "registry_login",
    "remove_endpoint",
    "remove_registry",
    "remove_secret",
    "remove_template",
    "requeue_node",
    "retry",
    "shorten",
    "spaces_due",
    "stream_cursor",
    "submit",
    "sweep_audit",
    "take_over",
    "touch_node",
    "usage_due",
    "users_of",
    "view",
    "want",
    "webhook_later",
    "webhook_secret",
    "webhook_tried",
]
