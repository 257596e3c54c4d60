"""The published checkpointer suite, through the async methods and the sync ones, on every engine."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langchain_mastra_memory.store.sql.engine import SQLMemoryStore
from langchain_mastra_memory.threads.saver import ThreadSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""How many tests each capability has in the version that the suite was written for: none may vanish silently."""


class SyncFace(BaseCheckpointSaver[Any]):
    """The sync methods of a saver, behind the async names that the suite calls."""

    def __init__(self, saver: ThreadSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    async def aget_tuple(self, config):
        return await asyncio.to_thread(self.saver.get_tuple, config)

    async def aput(self, *args):
        return await asyncio.to_thread(self.saver.put, *args)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        await asyncio.to_thread(self.saver.put_writes, config, writes, task_id, task_path)

    async def alist(self, config, **options):
        for found in await asyncio.to_thread(lambda: list(self.saver.list(config, **options))):
            yield found

    async def adelete_thread(self, thread_id):
        await asyncio.to_thread(self.saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids):
        await asyncio.to_thread(self.saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source, target):
        await asyncio.to_thread(self.saver.copy_thread, source, target)

    async def aprune(self, thread_ids, *, strategy="keep_latest"):
        await asyncio.to_thread(lambda: self.saver.prune(thread_ids, strategy=strategy))


async def check(url: str, *, sync: bool = False, serde: Any = None) -> None:
    @checkpointer_test(name="ThreadSaver")
    async def make() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        store = SQLMemoryStore(url)
        saver = ThreadSaver(store, serde=serde)
        yield SyncFace(saver) if sync else saver
        await store.aclose()

    report = await validate(make)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert not failures
    assert {name for name, result in report.results.items() if result.detected} == {c.value for c in Capability}
    passed = {name: result.tests_passed for name, result in report.results.items()}
    assert passed == TESTS


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_the_published_suite_passes_whole(store_url, face):
    await check(store_url, sync=face == "sync")


async def test_the_published_suite_passes_under_encryption(sqlite_url):
    await check(sqlite_url, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"))
