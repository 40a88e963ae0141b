"""Details of one job for whoever looks into it: its input, its attempts, and its case once it has ended."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from pydantic_core import from_json, to_json

from stoker.control import store
from stoker.control.errors import CasesClosed, NotFound
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.case_record import Payloads, case_record, why_no_case, without_secrets
from stoker.control.jobs.queries import no_job
from stoker.control.large_json import LargeJson
from stoker.control.rules.access import Caller
from stoker.control.rules.attempts import JobAttempts
from stoker.control.rules.types import Endpoint, JobView
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import AttemptKey, Ref


class JobDetails:
    def __init__(
        self,
        commits: Commits,
        artifacts: Artifacts,
        cluster: ClusterState,
        clock: Callable[[], float],
        large_json: LargeJson,
    ) -> None:
        self._commits, self._large_json = commits, large_json
        self._artifacts = artifacts
        self._cluster = cluster
        self._clock = clock

    async def attempts(self, endpoint: Endpoint, job: str) -> JobAttempts:
        """Returns the attempts at the job, without one that only lies ahead of a worker."""
        now = self._clock()
        found = await self._commits.read(
            lambda conn: store.job_attempts(conn, endpoint.account, endpoint.id, job, now)
        )
        if found is None:
            raise no_job(job)
        ahead = self._cluster.lies_ahead
        begun = [a for a in found.attempts if a.ended_at or not ahead(AttemptKey(job, a.attempt))]
        return replace(found, attempts=tuple(begun))

    async def input(self, endpoint: Endpoint, job: str, caller: Caller) -> bytes:
        """Returns the job's input as JSON text, to the key that submitted it as it was. To another key that
        may read cases it is as in a case: of its URLs the user, the query and the fragment are left out.
        Raises CasesClosed for others."""
        now = self._clock()
        found = await self._commits.read(
            lambda conn: store.job_input(conn, endpoint.account, endpoint.id, job, now)
        )
        if found is None:
            raise no_job(job)
        own = bool(caller.key) and caller.key == found.api_key
        if not own and not caller.access.may_read_cases(endpoint.rights):
            raise CasesClosed(
                "this key may not read the input of a job that another key submitted;"
                " `stoker key create --cases` makes one that may"
            )
        body = await self._whole(found.body, found.ref) or b"null"
        if own:
            return body
        return await self._large_json.run(
            "an input", len(body), lambda: to_json(without_secrets(from_json(body)))
        )

    async def case(self, endpoint: Endpoint, job: str) -> bytes:
        """Returns the record of the job's case as JSON text. Raises NotFound with the reason where none was
        kept."""
        view, case, payloads = await self.whole_case(endpoint, job)
        size = len(payloads.input or b"") + len(payloads.saved or b"") + len(case.noted)
        return await self._large_json.run("a case", size, lambda: to_json(case_record(view, case, payloads)))

    async def whole_case(self, endpoint: Endpoint, job: str) -> tuple[JobView, store.StoredCase, Payloads]:
        """Returns the job's case with all that it names, secrets too. Raises NotFound as `case` does."""
        now = self._clock()

        def read(conn: Conn) -> tuple[JobView | None, store.StoredCase | None]:
            found = store.view(conn, endpoint.account, endpoint.id, job, now)
            case = None if found is None else store.case_of(conn, endpoint.id, job)
            if case is None and endpoint.keep_cases:
                case = store.case_of_completed(conn, endpoint.id, job)
            return found, case

        view, case = await self._commits.read(read)
        if view is None:
            raise no_job(job)
        if case is None:
            raise NotFound(why_no_case(view, keeps=endpoint.keep_cases))
        body, saved = (
            await self._whole(case.input, case.input_ref),
            await self._whole(case.saved, case.saved_ref),
        )
        return view, case, Payloads(body, saved)

    async def _whole(self, inline: bytes | None, ref: Ref | None) -> bytes | None:
        return inline if ref is None else await self._artifacts.get(ref)
