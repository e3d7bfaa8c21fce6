"""Clang finds no pointer that changes its address space in any kernel, and finds a planted one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.metal.rig import Source
from tests.metal.samples import sources
from tests.metal.spaces import complaints, has_clang

from camelid_native.mlx.metal import adapters, attention, experts, products, rows, sampling
from camelid_native.mlx.metal.launch import Kernel

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not has_clang(), reason="no clang: pip install ziglang"),
]


@pytest.fixture(scope="module")
def texts() -> Mapping[str, Source]:
    return sources()


def test_the_sample_has_every_kernel(texts: Mapping[str, Source]) -> None:
    modules = (products, adapters, attention, experts, rows, sampling)
    values = (value for module in modules for value in vars(module).values())
    bodies = {value.body[-1] for value in values if isinstance(value, Kernel)}
    assert bodies == {source.name for source in texts.values()}


def test_no_pointer_changes_its_space(texts: Mapping[str, Source]) -> None:
    assert complaints(texts.values()) == []


def test_a_pointer_without_its_space_is_found(texts: Mapping[str, Source]) -> None:
    linear = texts["linear q8_0"]
    wrong = replace(linear, text=linear.text.replace("const device float *from", "const float *from"))
    assert complaints([wrong])
    assert complaints([linear]) == []


def test_braces_in_place_of_a_vector_are_found(texts: Mapping[str, Source]) -> None:
    """Metal's vectors are of the compiler: no list in braces becomes a parameter."""
    rope = texts["norm_rope q8_0"]
    wrong = replace(
        rope, text=rope.text.replace("float2(head[at], head[at + NEXT])", "{head[at], head[at + NEXT]}")
    )
    assert complaints([wrong])
    assert complaints([rope]) == []
