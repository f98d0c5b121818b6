"""The names of tables and files: random UUIDs that nobody predicts and no two processes or threads share."""

import multiprocessing
import os
import random
import re
import threading
from multiprocessing.connection import Connection

import pytest

from nunatak.server import UUIDS_AT_ONCE, uuid_maker

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_each_is_another_and_of_version_four() -> None:
    new_uuid = uuid_maker()

    made = [new_uuid() for _ in range(3 * UUIDS_AT_ONCE + 1)]

    assert len(set(made)) == len(made)
    assert all(UUID4.fullmatch(each) for each in made)
    assert {each[19] for each in made} == set("89ab")


def test_every_bit_comes_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that a program seeds can be calculated from its output; the system's cannot."""
    drawn = bytes(range(16)) * UUIDS_AT_ONCE
    monkeypatch.setattr(os, "urandom", lambda size: drawn[:size])
    monkeypatch.setattr(random.Random, "getrandbits", lambda *_: pytest.fail("seeded randomness"))
    new_uuid = uuid_maker()

    assert new_uuid() == "00010203-0405-4607-8809-0a0b0c0d0e0f"


def test_threads_share_none() -> None:
    new_uuid, made = uuid_maker(), []

    def make_many() -> None:
        made.extend([new_uuid() for _ in range(20 * UUIDS_AT_ONCE)])

    threads = [threading.Thread(target=make_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == len(made) == 80 * UUIDS_AT_ONCE


def test_processes_that_were_forked_share_none() -> None:
    new_uuid = uuid_maker()
    new_uuid()  # the rest of what was drawn waits here
    fork = multiprocessing.get_context("fork")

    def make_many(to: Connection) -> None:
        to.send([new_uuid() for _ in range(UUIDS_AT_ONCE)])

    made = [new_uuid() for _ in range(UUIDS_AT_ONCE // 2)]
    for _ in range(2):
        here, there = fork.Pipe()
        process = fork.Process(target=make_many, args=(there,))
        process.start()
        made += here.recv()
        process.join()

    assert len(set(made)) == len(made)
