"""The interface of the store: all queries and changes of the database.

Plain synchronous functions on a `Conn`, run inside a transaction by `database.commits`; time is a parameter.
The guards of every change of a job's state come from control.rules.job_states.MOVES.
"""

from stoker.control.store.billing.bills import (
    BillQuery,
    bill_pods,
    bill_volumes,
    read_bills,
    read_spaces,
    spaces_due,
)
from stoker.control.store.billing.samples import count_jobs, queue_sample, read_counters, waiting_since
from stoker.control.store.billing.usage import USAGE_LIFE_S, forget_usage, usage_due
from stoker.control.store.database.opening import (
    DEFAULT_ACCOUNT,
    Conn,
    Store,
    StoreError,
    StoreInUse,
    open_store,
)
from stoker.control.store.jobs.attempts import job_attempts
from stoker.control.store.jobs.cases import StoredCase, case_of, case_of_completed
from stoker.control.store.jobs.expiry import expire, expired_artifacts, forget_artifacts
from stoker.control.store.jobs.jobs import claim, submit
from stoker.control.store.jobs.kept_chunks import is_kept, kept_page
from stoker.control.store.jobs.kept_logs import job_logs, last_lines
from stoker.control.store.jobs.lists import list_jobs, number_of
from stoker.control.store.jobs.orders import (
    cancel,
    cancel_all,
    delete,
    end_late,
    end_wait,
    newest,
    purge,
    purge_ahead,
    retry,
    shorten,
)
from stoker.control.store.jobs.orphan_objects import due_orphans, forget_orphans, note_orphans, noted, release
from stoker.control.store.jobs.places import ahead_of, ahead_of_new
from stoker.control.store.jobs.reads import (
    advance,
    chunks,
    job_input,
    stream_cursor,
    view,
)
from stoker.control.store.jobs.reports import apply_reports
from stoker.control.store.jobs.webhook_outbox import (
    drop_webhook_secret,
    due_webhook,
    next_webhook_at,
    rotate_webhook_secret,
    webhook_later,
    webhook_secret,
    webhook_secrets,
    webhook_tried,
)
from stoker.control.store.jobs.yields import Contest, contest
from stoker.control.store.nodes.assigned_workers import (
    give_workers,
    take_workers,
    usage_owner,
    workers_of_node,
)
from stoker.control.store.nodes.leases import (
    add_node,
    close_session,
    open_session,
    reconcile,
    take_over,
    touch_node,
    upload_right,
)
from stoker.control.store.nodes.requeue import drop_attempt, hand_back, lost_nodes, requeue_node
from stoker.control.store.resources.audit_lines import begin_audit, end_audit, list_audit, sweep_audit
from stoker.control.store.resources.endpoint_uses import use_of
from stoker.control.store.resources.endpoints import (
    deleted_endpoints,
    list_endpoints,
    list_runs,
    put_endpoint,
    remove_endpoint,
)
from stoker.control.store.resources.named_secrets import (
    NamedSecret,
    list_secrets,
    put_secret,
    read_secrets,
    remove_secret,
)
from stoker.control.store.resources.pods import add_pod, get_pod, list_pods, put_pod, reconcile_pods, want
from stoker.control.store.resources.registries import (
    Registry,
    add_registry,
    list_registries,
    registry_login,
    remove_registry,
)
from stoker.control.store.resources.templates import (
    get_template,
    list_templates,
    named_template,
    put_template,
    remove_template,
)
from stoker.control.store.resources.users import users_of
from stoker.control.store.resources.volumes import (
    add_volume,
    delete_volume,
    forget_volumes,
    get_volume,
    list_volumes,
    put_volume,
)
