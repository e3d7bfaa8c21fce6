"""Hostile values of every field of every endpoint: refused with a clear error or honoured, never a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from tests.support.exhaustive import every, share_of
from tests.support.served_here import ServedHere, served_here
from tests.support.undisturbed import undisturbed

from camelid.server.app import ROUTES
from camelid.server.http.route import Route
from camelid.server.service.limits import Limits

# As JSON texts: some have no value in Python.
VALUES = (
    "NaN", "-Infinity", "1e308", "-1e308", "1e400", "[1e400]", "true", "false", "-1", "-0.0", "0.5", "9" * 30,
    "-9223372036854775809", "9" * 5000, '""', '"\\ud800"', '"\\u0000"', '"%s"' % ("a" * 20_000), "[]", "{}",
    "[[[[]]]]", "[null]",
    '"\ud800"', '{"\ud800": "\ud800"}', "1" + "0" * 299, "1" + "0" * 400, "[[1, 1%s]]" % ("0" * 299),
    '[{"type": []}]', '[{"role": "user", "content": [{"type": []}, {"type": {}}]}]', '{"type": {}}',
    '[-1, true, 1e308]', '[{"a": []}]', '{"a": {"b": -1}}', '{"type": "nonsense"}', "[" * 300 + "]" * 300,
)  # fmt: skip
# Field -> a harmless value, for the fields that an endpoint cannot do without.
BASE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi", "content": "Hi",
    "tokens": [1, 2], "query": "Hi", "documents": ["Hi"], "input_prefix": "a", "input_suffix": "b",
    "max_tokens": 2, "model": "cria",
}  # fmt: skip
PLACE = re.compile(r"(/[\w.-]+){2,}\.(py|so|gguf)|0x[0-9a-f]{6,}|Traceback|line \d+, in ")
EACH = 6  # ordinary runs send each 6th body: no divisor of len(VALUES), so that fields meet all values
TABLES = {id(route.table): route for route in reversed(ROUTES) if route.table}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(limits=Limits(max_tokens=2, timeout_s=5)) as running:
        yield running


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def base_of(route: Route) -> dict[str, Any]:
    assert route.table
    return {name: value for name, value in BASE.items() if name in route.table.fields}


def bodies(route: Route) -> Iterator[tuple[str, str]]:
    """Each field of the table with each value, among harmless ones."""
    assert route.table
    for name in (*route.table.fields, *route.table.refused):
        rest = json.dumps({key: value for key, value in base_of(route).items() if key != name})[1:-1]
        for value in VALUES:
            yield (
                f"{name} = {value[:30]}",
                "{" + rest + (", " if rest else "") + f"{json.dumps(name)}: {value}" + "}",
            )


@pytest.mark.slow
@pytest.mark.parametrize("each", share_of([EACH, 1]))
@pytest.mark.parametrize("route", every(2, [*TABLES.values()]), ids=name_of)
def test_a_hostile_value_is_no_fault(served: ServedHere, route: Route, each: int) -> None:
    path = route.path.replace("{id}", "0").replace("{digest}", "x")
    with undisturbed(served.http):
        for what, body in islice(bodies(route), 0, None, each):
            reply = served.http.request(route.method, path, content=body.encode("utf-8", "surrogatepass"))
            assert reply.status_code < 500 or reply.status_code in (501, 503), (what, reply.text)
            if not reply.is_success:
                assert 10 < len(reply.text) < 3000, (what, reply.text)
                assert not PLACE.search(reply.text), (what, reply.text)
    served.wait_idle()
