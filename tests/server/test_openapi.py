"""GET /openapi.json: it describes every route, and requests made from it never end in a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.openapi.checks import RejectedPositiveData
from tests.support.exhaustive import in_turn
from tests.support.served_here import ServedHere, served_here

from camelid.server import faces
from camelid.server.app import FACES, ROUTES
from camelid.server.faces import native_text
from camelid.server.faces.openapi import document, path_of
from camelid.server.service.limits import Limits

DOCUMENT = document(ROUTES)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
FOUND = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]
OPERATIONS = {operation.label: operation for operation in FOUND}
# Rows with the same handler and table are one endpoint under several names.
FIRST = {(route.handle, id(route.table)): route for route in reversed(ROUTES)}
MAIN = {f"{route.method} {path_of(route)}" for route in FIRST.values()}
ANSWER_S = 10.0


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(limits=Limits(max_tokens=3, timeout_s=5)) as running:
        yield running


def test_the_document_describes_every_route(served: ServedHere) -> None:
    found = served.http.get("/openapi.json").json()
    assert found == json.loads(json.dumps(DOCUMENT))
    rows = {(route.method.lower(), path_of(route)) for route in ROUTES}
    assert {(method, path) for path, row in found["paths"].items() for method in row} == rows
    assert ("get", "/openapi.json") in rows
    assert len(OPERATIONS) == len(rows)
    ids = [operation["operationId"] for row in found["paths"].values() for operation in row.values()]
    assert len(ids) == len(set(ids))


def test_its_schemas_are_valid_and_name_every_field() -> None:
    for route in (route for route in ROUTES if route.table):
        operation = DOCUMENT["paths"][path_of(route)][route.method.lower()]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        assert route.table is not None
        assert schema["properties"].keys() == {*route.table.fields, *route.table.refused}


def test_queries_are_declared() -> None:
    folder = Path(str(faces.__file__)).parent
    for face in FACES:
        source = (folder / f"{face.__name__.rpartition('.')[2]}.py").read_text("utf-8")
        read = set(re.findall(r"call\.query\.get\(\"(\w+)\"", source))
        assert read == {name for route in face.ROUTES for name in route.query}, face.__name__


def check(label: str, mode: GenerationMode, n: int, served: ServedHere) -> int:
    """Sends `n` requests made from the document and checks the replies; returns the number sent.

    Two checks do not apply. A right request may be refused: no schema says how long the context is, or that
    two fields exclude each other. And of server errors 501 is an answer here: what no loaded model can do.
    """
    sent: list[int] = []

    @settings(
        max_examples=n, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        response = case.call(base_url=str(served.http.base_url), timeout=ANSWER_S)
        sent.append(response.status_code)
        assert response.status_code < 500 or response.status_code == 501, response.text
        try:
            case.validate_response(response, excluded_checks=[not_a_server_error])
        except BaseExceptionGroup as group:
            left = group.split(RejectedPositiveData)[1]
            if left:
                raise left from None

    try:
        run()
    except Unsatisfiable:  # no wrong request exists: there is nothing to send, or every text is right
        assert mode is GenerationMode.NEGATIVE
    return len(sent)


@pytest.mark.slow
@pytest.mark.parametrize(("label", "mode"), in_turn([*OPERATIONS], list(GenerationMode)))
def test_requests_end_without_a_fault(served: ServedHere, label: str, mode: GenerationMode) -> None:
    n_sent = check(label, mode, 5 if label in MAIN else 1, served)
    assert n_sent or mode is GenerationMode.NEGATIVE
    served.wait_idle()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("label", sorted(MAIN))
def test_many_requests_end_without_a_fault(served: ServedHere, label: str, mode: GenerationMode) -> None:
    check(label, mode, 300, served)
    served.wait_idle()


def test_a_fault_would_be_seen(served: ServedHere, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(native_text, "model_tokenizer", broken)
    with pytest.raises(AssertionError, match="ValueError in the server"):
        check("POST /detokenize", GenerationMode.POSITIVE, 5, served)
