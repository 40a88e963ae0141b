"""Pools and types of GPUs say the same, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.errors import BadRequest
from stoker.control.http.management.v2.gpu_pools import POOLS, pool_of, pools_of, types_of
from stoker.control.resources.catalog import GPU_TYPES

KNOWN = (*GPU_TYPES, "a GPU of this cluster")
types = st.lists(st.sampled_from(KNOWN), unique=True)


@given(types)
def test_types_come_back_from_their_pools(wanted: list[str]) -> None:
    pools, excluded = pools_of(wanted)
    assert set(types_of(pools, excluded, KNOWN)) == set(wanted)


@given(st.lists(st.sampled_from(sorted(POOLS)), unique=True, min_size=1))
def test_pools_come_back_from_their_types(pools: list[str]) -> None:
    assert pools_of(types_of(pools, (), KNOWN)) == (pools if len(pools) < len(POOLS) else list(POOLS), [])


def test_every_type_of_a_pool_is_published_and_in_one_pool() -> None:
    in_pools = [one for types in POOLS.values() for one in types]
    assert set(in_pools) <= set(GPU_TYPES)
    assert len(in_pools) == len(set(in_pools))
    assert pool_of("NVIDIA A40") == "AMPERE_48"
    assert pool_of("a GPU of this cluster") is None


@pytest.mark.parametrize(
    ("pools", "excluded", "why"),
    [
        (["ADA"], [], "gpu.pools must hold names out of: AMPERE_16.*a GPU of this cluster; got"),
        (["NVIDIA A40"], [], "gpu.pools must hold names"),
        (["AMPERE_48"], ["NVIDIA L4"], "which are NVIDIA A40, NVIDIA RTX A6000; got"),
        (["ADA_24"], ["NVIDIA GeForce RTX 4090"], "leaves no type"),
    ],
)
def test_what_is_in_no_pool_is_refused(pools: list[str], excluded: list[str], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        types_of(pools, excluded, KNOWN)
