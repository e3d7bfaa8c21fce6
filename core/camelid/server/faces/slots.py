"""/slots: the request under each number, and its tokens and rows saved, restored and erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from camelid.server.faces.common import Body
from camelid.server.faces.native_settings import generation_settings
from camelid.server.fields.native import SLOT
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, retry_later
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.entry import Entry
from camelid.server.service.service import Service
from camelid.server.service.slot_files import checked_name, restore, save
from camelid.server.service.slots import Held, Slot, Slots

WAIT_S = 30.0  # longest wait of an action for its slot


async def list_slots(server: Server, call: Call) -> Reply:
    """All slots. Raises ApiError 501 under --no-slots; 503 if none is free and the query asks for one."""
    entry = await shown_entry(server, call)
    slots, service = slots_of(entry), entry.service
    if service and call.query.get("fail_on_no_slot") and all(slot.holder for slot in slots):
        raise retry_later(503, "no slot available", service.admission.wait_s, "no_slot")
    return JsonReply([slot_object(slot, entry) for slot in slots])


async def one_slot(server: Server, call: Call) -> Reply:
    """One slot."""
    entry = await shown_entry(server, call)
    return JsonReply(slot_object(slot_of(slots_of(entry), call), entry))


async def shown_entry(server: Server, call: Call) -> Entry:
    if not server.slots.shows_slots:
        raise ApiError(501, "This server does not support slots endpoint: start it without --no-slots")
    return await server.shown(call.query.get("model"))


def slots_of(entry: Entry) -> Slots:
    """The slots of a model. Those of one that is not loaded are idle."""
    return entry.service.slots if entry.service else Slots(entry.row.options.parallel)


def slot_of(slots: Slots, call: Call) -> Slot:
    """The slot of the path. Raises ApiError 400 for a number that no slot has."""
    text = str(call.params["id"])
    if text.isascii() and text.isdecimal() and int(text[:9]) < len(slots):
        return slots[int(text[:9])]
    raise ApiError(400, f"Invalid slot ID {text!r:.40}, expected 0 to {len(slots) - 1}", param="id")


def slot_object(slot: Slot, entry: Entry) -> Body:
    """llama.cpp's object of a slot; no text, since prompts are their clients' own."""
    body: Body = {
        "id": slot.id,
        "n_ctx": entry.context or entry.row.options.context or 0,
        "speculative": False,
        "is_processing": slot.holder is not None,
    }
    return body | task_fields(slot.shown, is_running=slot.holder is not None) if slot.shown else body


def task_fields(held: Held, *, is_running: bool) -> Body:
    """The fields of the choice that holds a slot, or held it last."""
    request, job = held.started.request, held.started.job
    settings = generation_settings(request, job.options, {})
    for name in ("stop", "grammar", "logit_bias", "dry_sequence_breakers"):
        settings.pop(name)
    n_remain = -1 if request.max_tokens is None else max(request.max_tokens - held.n_decoded, 0)
    next_token = {
        "has_next_token": is_running,
        "has_new_line": held.has_new_line,
        "n_remain": n_remain,
        "n_decoded": held.n_decoded,
    }
    return {"id_task": held.task_id, "params": settings, "next_token": [next_token]}


async def change_slot(server: Server, call: Call) -> Reply:
    """Saves, restores or erases a slot, by the query's action."""
    own = SLOT.read(call.json(), call).own
    folder = server.slots.save_path
    if folder is None:
        raise ApiError(501, "This server does not support slots action. Start it with `--slot-save-path`")
    action = call.query.get("action", "")
    if action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise ApiError(400, f"Invalid action {action!r:.40}; known: {known}", param="action")
    service = await server.service(own.get("model"))
    slot = slot_of(service.slots, call)
    async with idle(slot, service):
        if action != "restore" and slot.token_ids and not slot.salt.startswith(own_salt(call)):
            raise ApiError(403, f"slot {slot.id} holds another key's tokens", param="id")
        return JsonReply({"id_slot": slot.id, **await ACTIONS[action](service, slot, folder, own, call)})


@asynccontextmanager
async def idle(slot: Slot, service: Service) -> AsyncGenerator[None]:
    """The service's only action, on a slot that no request holds. Raises ApiError 503 after WAIT_S.

    The request that held the slot leaves its tokens there, so their owner is known only inside.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(WAIT_S):
                await stack.enter_async_context(service.slots.changing)
                await slot.idle()
        except TimeoutError:
            raise retry_later(
                503, f"slot {slot.id} was in use for {WAIT_S:g} s; repeat the action later",
                service.admission.wait_s, "slot_busy",
            ) from None  # fmt: skip
        yield


async def save_slot(service: Service, slot: Slot, folder: Path, own: Mapping[str, Any], call: Call) -> Body:
    name = checked_name(own.get("filename"))
    saved = await save(service, slot, folder, name, own_salt(call))
    times = {"save_ms": saved.ms}
    return {"filename": name, "n_saved": saved.n_rows, "n_written": saved.n_bytes, "timings": times}


async def restore_slot(
    service: Service, slot: Slot, folder: Path, own: Mapping[str, Any], call: Call
) -> Body:
    name = checked_name(own.get("filename"))
    read = await restore(service, slot, folder, name, own_salt(call))
    times = {"restore_ms": read.ms}
    return {"filename": name, "n_restored": read.n_rows, "n_read": read.n_bytes, "timings": times}


async def erase_slot(service: Service, slot: Slot, folder: Path, own: Mapping[str, Any], call: Call) -> Body:  # noqa: ARG001
    """Forgets the slot's tokens, and the cached rows that no other slot's tokens share."""
    token_ids, engine = slot.token_ids, service.host.running.engine
    n_shared, salt, keys = service.slots.n_shared(slot), slot.salt, slot.row_keys
    slot.remember((), "")
    await service.host.call(engine.forget_rows(token_ids, salt, n_shared, keys))
    return {"n_erased": len(token_ids)}


def own_salt(call: Call) -> str:
    """The salt of this key's requests without a salt of their own."""
    return f"{call.key.salt}/" if call.key.salt else ""


TEXT = {"type": "string"}
ACTIONS = {"save": save_slot, "restore": restore_slot, "erase": erase_slot}
ROUTES = (
    Route("GET", "/slots", list_slots, query={"model": TEXT, "fail_on_no_slot": TEXT}),
    Route("GET", "/slots/{id}", one_slot, query={"model": TEXT}),
    Route("POST", "/slots/{id}", change_slot, SLOT, query={"action": {"enum": list(ACTIONS)}}),
)
