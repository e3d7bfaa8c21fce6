"""Requests to think or not, as variables of the model's chat template."""

from __future__ import annotations

from camelid.requests.chat import ChatTemplate
from camelid.server.faces.common import Body
from camelid.server.http.errors import ApiError
from camelid.text.templates.named import chosen_template
from camelid.text.toolcalls.families import detect


def can_think(chat: ChatTemplate) -> bool:
    """True for a template whose answers may hold thoughts."""
    return detect(chosen_template(chat.sources, tools=False)).thinking is not None


def thinking_variables(chat: ChatTemplate, thinks: bool, field: str) -> Body:
    """The variables that turn thoughts on or off; none where the model does so without a variable.

    Raises ApiError 400 for a model that cannot think, and for one that always does.
    """
    if chat.thought_switch:
        return {chat.thought_switch: thinks}
    if thinks == can_think(chat):
        return {}
    reason = "this model cannot think" if thinks else "this model always thinks before its answer"
    raise ApiError(400, f"{reason}; leave {field} out", param=field)


def effort_variables(chat: ChatTemplate, effort: str, field: str) -> Body:
    """The variable that sets the effort of thinking. Raises ApiError 400 for a template without one."""
    if "reasoning_effort" in chat.variables:
        return {"reasoning_effort": effort}
    raise ApiError(
        400, f"this model's chat template has no effort of thinking; leave {field} out", param=field
    )
