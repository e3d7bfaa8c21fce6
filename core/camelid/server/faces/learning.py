"""POST /v1/feedback, and /v1/learning: a key's own space, which no other key sees."""

from __future__ import annotations

from dataclasses import asdict

from camelid.api.learning import Learning
from camelid.errors import RequestError
from camelid.learning.items import Item
from camelid.learning.learner import Learner
from camelid.server.faces.common import Body
from camelid.server.fields.learning import FEEDBACK, FORGET, UNDO, USE
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.keys import Key
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.learning import Learners, quota_error

SCOPE = "learn"
HIDDEN = ("path",)  # facts of the machine that no client needs


async def feedback(server: Server, call: Call) -> Reply:
    """A thumb up (1) or down (-1) on an answer of this key, and perhaps the right answer."""
    own = FEEDBACK.read(call.json(), call).own
    learners = await learners_of(server, own.get("model"))
    learner = await learners.of(call.key)
    try:
        item = learner.feedback(own["completion_id"], own["rating"], own.get("correction"), source(call.key))
    except RequestError as error:
        if error.facts.get("reason") == "quota":
            raise quota_error(error.facts, error.message) from error
        if error.facts.get("reason") == "unknown":
            raise ApiError(404, error.message, code="completion_not_found", param="completion_id") from error
        raise
    learners.settle(learner)
    return JsonReply({"object": "feedback", "id": item.id, "rating": item.rating}, 202)


async def status(server: Server, call: Call) -> Reply:
    """What was learnt from this key's feedback: counts, versions, the meter, the items."""
    entry = await server.shown(call.query.get("model"))
    learners = await learners_of(server, entry.row.name)
    learner = await learners.of(call.key)
    face = face_of(learner, learners)
    shown = {name: value for name, value in asdict(face.status()).items() if name not in HIDDEN}
    versions = [asdict(row) for row in face.versions()]
    return JsonReply({
        "object": "learning", **shown, "versions": versions, "items": list(map(item_body, face.items())),
    })  # fmt: skip


async def use(server: Server, call: Call) -> Reply:
    """Puts a version in use, or the base."""
    own = USE.read(call.json(), call).own
    face = await face_for(server, call, own.get("model"))
    return JsonReply({"object": "learning.version", "version": face.use(own["version"])})


async def undo(server: Server, call: Call) -> Reply:
    """Puts the version in use that was in use before."""
    own = UNDO.read(call.json(), call).own
    face = await face_for(server, call, own.get("model"))
    return JsonReply({"object": "learning.version", "version": face.undo()})


async def forget(server: Server, call: Call) -> Reply:
    """Forgets an item of feedback and all that was made of it."""
    own = FORGET.read(call.json(), call).own
    learners = await learners_of(server, own.get("model"))
    learner = await learners.of(call.key)
    try:
        done = await learner.aforget(own["item"])
    finally:
        learners.settle(learner)
    assert done, "a server has a store"
    return JsonReply({
        "object": "learning.forgotten", "item": done.item, "stale": list(done.stale),
        "also_in": list(done.also_in),
    })  # fmt: skip


async def learners_of(server: Server, name: str | None) -> Learners:
    """The learners of a model. Raises ApiError 501 for a server that does not learn."""
    service = await server.service(name)
    if service.learners is None:
        raise ApiError(501, "this server does not learn; start it with --learn memory", code="not_supported")
    return service.learners


async def face_for(server: Server, call: Call, name: str | None) -> Learning:
    learners = await learners_of(server, name)
    return face_of(await learners.of(call.key), learners)


def face_of(learner: Learner, learners: Learners) -> Learning:
    return Learning(learner, learners.host.running.options)


def source(key: Key) -> str:
    """Who gave feedback: a key's name."""
    return key.name


def item_body(item: Item) -> Body:
    """An item without its conversation, which its client has."""
    return {
        "id": item.id, "completion_id": item.exchange.completion_id, "rating": item.rating,
        "has_correction": item.correction is not None, "created": int(item.wall),
    }  # fmt: skip


TEXT = {"type": "string"}
ROUTES = (
    Route("POST", "/v1/feedback", feedback, FEEDBACK, SCOPE),
    Route("GET", "/v1/learning", status, scope=SCOPE, query={"model": TEXT}),
    Route("POST", "/v1/learning/use", use, USE, SCOPE),
    Route("POST", "/v1/learning/undo", undo, UNDO, SCOPE),
    Route("POST", "/v1/learning/forget", forget, FORGET, SCOPE),
)
