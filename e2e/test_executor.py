"""web/executor.js alone: faults are reported by name, and a step creates no objects."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page
from tests.support.parity.add_one import ADD_ONE, FORBIDDEN, OWN_PIPELINES, program, step

from e2e.browser import ROOT, open_browser, serve_site
from e2e.page_host import PageHost, write_bare_site

pytestmark = pytest.mark.faults

Json = dict[str, Any]
Check = Callable[[PageHost, Page], Awaitable[None]]
SWIFTSHADER: Json = {"adapter": "swiftshader"}


async def adapter_is_named(host: PageHost, page: Page) -> None:
    with pytest.raises(RuntimeError, match=r"no adapter matches 'riva'; found: .*swiftshader"):
        await host.open({"adapter": "riva"})


async def api_is_refused(host: PageHost, page: Page) -> None:
    with pytest.raises(RuntimeError, match="'Vulkan' cannot be selected"):
        await host.open({"api": "Vulkan"})


async def nothing_works_unopened(host: PageHost, page: Page) -> None:
    with pytest.raises(RuntimeError, match="no device is open"):
        await host.allocate(program())


async def steps_follow_each_other(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    tickets = [host.run(number, step(4, 5)), host.run(number, step(7, 8))]
    assert [struct.unpack("<I", await host.read(t)) for t in tickets] == [(10,), (16,)]
    # An empty grid is not dispatched, and zero result words read zero bytes.
    assert await host.read(host.run(number, step(0, 99))) == struct.pack("<I", 16)
    assert await host.read(host.run(number, step(1, 1, 0))) == b""
    counters = await host.counters()
    assert (counters["runs"], counters["dispatches"], counters["bytesReadBack"]) == (4, 3, 12)
    assert counters["maxInFlight"] == 2


async def ring_is_bounded(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    tickets = [host.run(number, step(i, i)) for i in range(3)]
    with pytest.raises(RuntimeError, match="every slot of the ring is in flight"):
        await host.read(tickets[0])


async def ticket_is_read_again_until_its_slot_is_taken(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    first, second = host.run(number, step(1, 1)), host.run(number, step(2, 2))
    # Two concurrent reads, as after a cancelled read, and a third after both have returned.
    both = "(t) => Promise.all([executor.read(t), executor.read(t)]).then((a) => a.map((b) => b[0]))"
    assert await host.read(first) == struct.pack("<I", 3)
    assert await page.evaluate(both, second) == [5, 5]
    assert [await host.read(t) for t in (second, first)] == [struct.pack("<I", n) for n in (5, 3)]
    counters = await host.counters()
    assert (counters["inFlight"], counters["bytesReadBack"]) == (0, 8)
    assert await host.read(host.run(number, step(3, 3))) == struct.pack("<I", 7)
    with pytest.raises(RuntimeError, match="no step in flight with ticket 1"):
        await host.read(first)
    assert await host.read(second) == struct.pack("<I", 5)


async def failed_steps_give_their_slot_back(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    break_ = "([kind, name]) => { const own = globalThis[kind].prototype; globalThis.whole = own[name];"
    break_ += " own[name] = () => { throw new Error(`${name} is broken`); }; }"
    mend = "([kind, name]) => void (globalThis[kind].prototype[name] = globalThis.whole)"
    for broken in (["GPUBuffer", "getMappedRange"], ["GPUQueue", "submit"]):
        await page.evaluate(break_, broken)
        for _ in range(3):  # more often than the ring has slots
            with pytest.raises(RuntimeError, match=f"{broken[1]} is broken"):
                await host.read(host.run(number, step(1, 1)))
        await page.evaluate(mend, broken)
        if broken[1] == "getMappedRange":
            assert await host.read(host.run(number, step(1, 1))) == struct.pack("<I", 3)
    # The host has also counted the failed steps, so its ticket is unknown; the error is not a full ring.
    with pytest.raises(RuntimeError, match="no step in flight"):
        await host.read(host.run(number, step(1, 1)))


async def bad_shader_is_named(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    with pytest.raises(RuntimeError, match=r"(?s)program 'add one', shader add: .*unresolved.*nothing"):
        await host.compile(program(modules={"add": ADD_ONE.replace("step[0]", "nothing[0]")}))
    assert await page.evaluate("() => executor.memory()") == {}, "what was made is taken down"
    await host.compile(program())


async def bad_constant_is_named(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    pipelines = [{"module": "add", "layout": "rw", "constants": {"ABSENT": 1}}]
    with pytest.raises(RuntimeError, match=r"(?s)pipeline add: .*ABSENT"):
        await host.compile(program(pipelines=pipelines))


async def huge_buffer_is_named(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    buffers = [{"name": "state/k", "bytes": 1 << 40, "usage": ["storage"]}]
    with pytest.raises(RuntimeError, match=r"allocate 'pools', buffer state/k of 1099511627776 bytes: "):
        await host.allocate(program(name="pools", kind="allocate", buffers=buffers, groups=[]))


async def added_groups_keep_buffers_and_programs(host: PageHost, page: Page) -> None:
    def groups(names: list[str], **more: Any) -> Json:
        usage = ["storage", "copy_src", "copy_dst"]
        buffers = [{"name": name, "bytes": 16, "usage": usage} for name in names]
        parts: Json = {"modules": {}, "layouts": {}, "pipelines": [], "groups": [], "commands": []}
        return {"name": "allocate", "kind": "allocate", "buffers": buffers, **parts, **more}

    await host.open(SWIFTSHADER)
    await host.allocate(groups(["state/kv"]))
    await host.write_state("state/kv", 0, bytes(range(16)))
    number = await host.compile(program())
    await host.allocate(groups(["state/adapters.0.0/0"], dropped=[]))
    await host.write_state("state/adapters.0.0/0", 0, bytes([7] * 16))
    assert await host.read_state("state/kv", 0, 16) == bytes(range(16))
    assert struct.unpack("<I", await host.read(host.run(number, step(4, 5)))) == (10,)
    await host.allocate(groups(["state/kv"], dropped=["state/adapters.0.0/0"]))
    assert await host.read_state("state/kv", 0, 16) == bytes(16)
    assert "state/adapters.0.0/0" not in await page.evaluate("() => executor.memory()")


async def missing_buffer_is_named(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    groups = [{"layout": "rw", "bindings": [["step", 0, 16], ["weight/q", 0, 16]]}]
    with pytest.raises(RuntimeError, match="bind group 0: there is no buffer 'weight/q'"):
        await host.compile(program(groups=groups))


async def missing_source_is_named(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    commands = [["upload", "model", 0, 16, "out", 0]]
    load = program(kind="load", commands=commands)
    with pytest.raises(RuntimeError, match=r"absent\.gguf: the server answered 404"):
        await host.load(load, {"model": "absent.gguf"})
    with pytest.raises(RuntimeError, match="there is no source 'model'; known: other"):
        await host.load(load, {"other": "bare.html"})


async def upload_of_odd_length_fills_up_with_zeros(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    data = bytes(range(1, 11))
    upload = ["upload", ["inline", base64.b64encode(data).decode()], 1, 9, "out", 4]
    await host.load(program(kind="load", commands=[upload]), {})
    assert await host.read_state("out", 0, 16) == bytes(4) + data[1:] + bytes(3)


async def lost_device_is_told(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    await host.read(host.run(number, step(1, 1)))
    await page.evaluate("() => globalThis.devices.at(-1).destroy()")
    lost = r"DeviceLostError: the device was lost \(destroyed\)"
    with pytest.raises(RuntimeError, match=lost):
        await host.read(host.run(number, step(1, 1)))
    with pytest.raises(RuntimeError, match=lost):
        await host.compile(program())
    await host.close()
    again = PageHost(page)
    await again.open(SWIFTSHADER)
    assert await again.compile(program()) == 1
    answer = "(step) => executor.read(executor.run(1, Uint8Array.from(step))).then((bytes) => bytes[0])"
    assert await page.evaluate(answer, list(step(1, 1))) == 3, "nothing of the lost device is used"


async def equal_pipelines_are_made_once(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    created = [await page.evaluate("() => probe.created")]
    for changes, answer, _ in OWN_PIPELINES:
        number = await host.compile(program(**changes))
        created.append(await page.evaluate("() => probe.created"))
        assert await host.read(host.run(number, step(1, 1))) == struct.pack("<I", answer)
    each = [after - before for before, after in pairwise(created)]
    least = min(each)
    assert each == [least + n_new for _, _, n_new in OWN_PIPELINES], "modules and pipelines"
    with pytest.raises(RuntimeError, match="pipeline add"):
        await host.compile(program(**FORBIDDEN))


async def prepared_pipelines_are_used(host: PageHost, page: Page) -> None:
    """A program finds its pipeline prepared, and tells the error of one that failed."""
    await host.open(SWIFTSHADER)
    created = [await page.evaluate("() => probe.created")]
    for name in ("prepared", "again"):
        host.prepare(program(buffers=[], groups=[], commands=[]))
        number = await host.compile(program(name=name))
        assert await host.read(host.run(number, step(1, 1))) == struct.pack("<I", 3)
        created.append(await page.evaluate("() => probe.created"))
    first, again = (after - before for before, after in pairwise(created))
    assert first == again + 2, "a module and a pipeline once"
    bad = {"modules": {"add": ADD_ONE.replace("step[0]", "nothing[0]")}}
    host.prepare(program(**bad))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"(?s)program 'add one', (shader|pipeline) add: "):
            await host.compile(program(**bad))


LATE: Json = {  # adds 3, and 1 while that is not compiled
    "pipelines": [
        {"module": "add", "layout": "rw", "constants": {"MORE": 3}},
        {"module": "add", "layout": "rw", "constants": {}},
    ],
    "early": [[0, 1, [1, [0, 1], 1]]],
}
IDLE_S = 0.5  # of executor.js


async def late_pipelines_are_compiled_after_the_steps(host: PageHost, page: Page) -> None:
    """Early pipelines run until then; a late one that fails leaves them, with a warning."""
    await host.open(SWIFTSHADER)
    number = await host.compile(program(**LATE))
    before = await page.evaluate("() => probe.created")
    for _ in range(12):  # for longer than IDLE_S, with much shorter pauses
        assert await host.read(host.run(number, step(1, 1))) == struct.pack("<I", 3)
        await asyncio.sleep(IDLE_S / 10)
    assert await page.evaluate("() => probe.created") == before
    early = found = struct.pack("<I", 3)
    for _ in range(20):
        await asyncio.sleep(3 * IDLE_S)  # steps in shorter pauses would keep the device busy
        if (found := await host.read(host.run(number, step(1, 1)))) != early:
            break
    assert found == struct.pack("<I", 5)
    assert await host.read(host.run(number, step(0, 1))) == struct.pack("<I", 5), "the late grid is empty"
    told = list[str]()
    page.on("console", lambda message: told.append(message.text))
    late, early = LATE["pipelines"]
    async with page.expect_console_message():
        broken = await host.compile(program(**LATE | {"pipelines": [late | {"constants": {"NO": 1}}, early]}))
    assert await host.read(host.run(broken, step(1, 1))) == struct.pack("<I", 3)
    assert len(told) == 1 and told[0].startswith("steps stay slower: program 'add one', pipeline add: ")


async def last_visits_pipelines_wait_for_the_executor(host: PageHost, page: Page) -> None:
    """They are compiled before it opens the same device, and only for the same model."""
    created = dict[str, int]()
    for visit in ("the first", "again", "of another model"):
        await page.reload()
        await page.wait_for_function("() => globalThis.recall")
        await page.evaluate("recall", "other" if visit == "of another model" else "model")
        await page.evaluate("() => new Promise((next) => setTimeout(next, 500))")
        again = PageHost(page)
        await again.open(SWIFTSHADER)
        before = await page.evaluate("() => probe.created")
        again.prepare(program(buffers=[], groups=[], commands=[]))
        number = await again.compile(program())
        assert await again.read(again.run(number, step(1, 1))) == struct.pack("<I", 3)
        created[visit] = await page.evaluate("() => probe.created") - before
        await page.evaluate("keep", "model")
    assert created["of another model"] == created["the first"] == created["again"] + 2, "module, pipeline"


async def another_device_than_the_last_visits_is_opened(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    host.prepare(program(buffers=[], groups=[], commands=[]))
    await host.compile(program())
    await page.evaluate("keep", "model")
    await page.reload()
    await page.wait_for_function("() => globalThis.recall")
    await page.evaluate("recall", "model")
    again = PageHost(page)
    await again.open({**SWIFTSHADER, "limits": {"maxBufferSize": 0}})
    number = await again.compile(program())
    assert await again.read(again.run(number, step(1, 1))) == struct.pack("<I", 3)
    await page.evaluate("forget")
    first, second = await page.evaluate("() => devices.map((d) => d.limits.maxBufferSize)")
    assert first < second, "the last visit's device is not used"
    lost = "() => devices[0].lost.then(({ reason }) => reason)"
    assert await asyncio.wait_for(page.evaluate(lost), 5) == "destroyed"


async def steps_create_nothing(host: PageHost, page: Page) -> None:
    await host.open(SWIFTSHADER)
    number = await host.compile(program())
    before = await page.evaluate("() => ({...probe})")
    for i in range(8):
        await host.read(host.run(number, step(i, 1)))
    after = await page.evaluate("() => ({...probe})")
    assert after["created"] == before["created"] > 0
    assert after["submits"] == before["submits"] + 8


CHECKS: list[Check] = [
    adapter_is_named,
    api_is_refused,
    nothing_works_unopened,
    steps_follow_each_other,
    ring_is_bounded,
    ticket_is_read_again_until_its_slot_is_taken,
    failed_steps_give_their_slot_back,
    bad_shader_is_named,
    bad_constant_is_named,
    huge_buffer_is_named,
    added_groups_keep_buffers_and_programs,
    missing_buffer_is_named,
    missing_source_is_named,
    upload_of_odd_length_fills_up_with_zeros,
    lost_device_is_told,
    equal_pipelines_are_made_once,
    prepared_pipelines_are_used,
    late_pipelines_are_compiled_after_the_steps,
    last_visits_pipelines_wait_for_the_executor,
    another_device_than_the_last_visits_is_opened,
    steps_create_nothing,
]


async def run_all(address: str) -> dict[str, BaseException | None]:
    """Runs every check on a fresh page of one browser. Returns check -> error or None."""
    outcomes: dict[str, BaseException | None] = {}
    async with open_browser() as browser:
        for check in CHECKS:
            page = await browser.new_page()
            await page.add_init_script(path=ROOT / "e2e" / "probe.js")
            await page.goto(f"{address}bare.html")
            try:
                await check(PageHost(page), page)
                outcomes[check.__name__] = None
            except (Exception, pytest.fail.Exception) as error:
                outcomes[check.__name__] = error
            await page.close()
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseException | None]:
    site: Path = tmp_path_factory.mktemp("bare")
    write_bare_site(site)
    with serve_site(site) as address:
        return asyncio.run(run_all(address))


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_executor(name: str, outcomes: dict[str, BaseException | None]) -> None:
    error = outcomes[name]
    if error is not None:
        raise error
