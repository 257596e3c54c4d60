"""Derived resources: the pair that each came from, so that two pairs which spell one id never share a memory."""

from __future__ import annotations

import sqlalchemy as sa

from langchain_mastra_memory.errors import ThreadOwnershipError
from langchain_mastra_memory.store.operations.delegations import StartDelegation
from langchain_mastra_memory.store.sql.lines import make_thread
from langchain_mastra_memory.store.sql.locking import lock_thread
from langchain_mastra_memory.store.sql.registry import handles
from langchain_mastra_memory.store.sql.schema import resources, threads
from langchain_mastra_memory.store.sql.threads import announce_thread
from langchain_mastra_memory.store.sql.tx import Tx, upsert
from langchain_mastra_memory.store.sql.values import dump_json
from langchain_mastra_memory.types import Thread

_PAIR = sa.select(resources.c.derived_from, resources.c.derived_agent).where(
    resources.c.id == sa.bindparam("resource_id")
)
_OWNS_A_THREAD = sa.select(threads.c.key).where(threads.c.resource_id == sa.bindparam("resource_id")).limit(1)
# The row is there already when two delegations start at once: whichever pair came first is read back and counts.
_RECORD = upsert(resources, ("id",), ()).values(
    {
        name: sa.bindparam(f"new_{name}", type_=resources.c[name].type)
        for name in ("metadata", "derived_from", "derived_agent", "version", "created_at", "updated_at")
    }
)


@handles(StartDelegation)
def start_delegation(tx: Tx, op: StartDelegation) -> Thread:
    """Make the worker's thread under its derived resource."""
    _record_pair(tx, op)
    made = make_thread(tx, op.thread_id, resource_id=op.resource_id, metadata=dump_json(op.metadata), delegated=True)
    if made is not None:
        return announce_thread(tx, made, op.metadata, op.features).thread()
    return lock_thread(tx, op.thread_id, op.resource_id, touch=False).thread()


def _record_pair(tx: Tx, op: StartDelegation) -> None:
    pair = tx.first(_PAIR, {"resource_id": op.resource_id})
    if pair is None:
        if tx.first(_OWNS_A_THREAD, {"resource_id": op.resource_id}) is not None:
            raise _taken(op, "a resource of the application has that id and owns threads")
        tx.run(
            _RECORD,
            {
                "id": op.resource_id,
                "new_metadata": "{}",
                "new_derived_from": op.parent_resource_id,
                "new_derived_agent": op.agent,
                "new_version": 1,
                "new_created_at": tx.now,
                "new_updated_at": tx.now,
            },
        )
        pair = tx.first(_PAIR, {"resource_id": op.resource_id})
    if pair != (op.parent_resource_id, op.agent):
        kept = "a resource of the application has that id"
        if pair is not None and pair[0] is not None:
            kept = "it came from another pair of parent and agent that spells the same"
        raise _taken(op, kept)


def _taken(op: StartDelegation, why: str) -> ThreadOwnershipError:
    return ThreadOwnershipError(
        f"the derived resource id {op.resource_id[:80]!r} of agent {op.agent[:40]!r} cannot be used: {why}; "
        "give the agent another name"
    )
