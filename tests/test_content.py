"""What counts as JSON, canonical bytes and content ids; checked against libraries that share no code with ours."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Any

import dag_cbor
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multiformats import CID

from agent_infra.content import (
    canonical,
    cid_of,
    cid_of_block,
    cid_of_bytes,
    fingerprint,
    from_canonical,
    is_cid,
    json_bytes,
    json_copy,
    json_value,
    matches_cid,
    reference,
    referred_cids,
)
from agent_infra.errors import NotJson
from agent_infra.testing.strategies import json_values, node_data, not_json, texts


def by_others(codec: str, content: bytes) -> str:
    return str(CID("base32", 1, codec, ("sha2-256", hashlib.sha256(content).digest())))


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down: 1 is not 1.0 here, and not True."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return repr(left) == repr(right)


def plus_zero(value: Any) -> Any:
    """Negative zero as zero: the two are equal, and canonical bytes are the same for equal values."""
    if isinstance(value, list):
        return [plus_zero(item) for item in value]
    if isinstance(value, dict):
        return {key: plus_zero(item) for key, item in value.items()}
    return value + 0.0 if isinstance(value, float) else value


# -- JSON ------------------------------------------------------------------------------------------


@given(json_values(20))
def test_json_comes_back_the_same(value: Any) -> None:
    raw, copy = json_copy(value)
    assert same(copy, value)
    assert same(json_value(raw), value)
    assert same(json.loads(raw), value)
    assert json_bytes(value) == raw
    if isinstance(value, list | dict):
        assert copy is not value


@given(not_json())
def test_the_first_thing_that_is_not_json_is_named(case: tuple[dict[str, Any], str]) -> None:
    data, pointer = case
    with pytest.raises(NotJson) as caught:
        json_bytes(data, where="the answer")
    assert caught.value.facts == {"path": pointer}
    assert caught.value.where == pointer
    assert "the answer" in caught.value.what
    assert caught.value.why


@pytest.mark.parametrize("value", [float("nan"), (1,), {1}, 2**64, "\ud800", {None: 1}, {1: 2}, object(), b"", 1j])
def test_an_offender_at_the_root_has_the_root_as_its_place(value: Any) -> None:
    with pytest.raises(NotJson) as caught:
        json_bytes(value)
    assert caught.value.facts["path"] == "/"


def test_deep_nesting_has_an_end() -> None:
    def nested(depth: int) -> Any:
        value: Any = "in the middle"
        for level in range(depth):
            value = [value] if level % 2 else {"x": value}
        return value

    assert json_copy(nested(100))[1] == nested(100)
    for depth in (300, 900, 5_000, 100_000):
        with pytest.raises(NotJson):
            json_bytes(nested(depth))


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotJson):
        json_bytes({"x": ring})


def test_integers_reach_over_all_64_bits_and_no_further() -> None:
    for value in (2**63 - 1, -(2**63), 2**53 + 1, 0):
        assert json_copy(value)[1] == value
        assert from_canonical(canonical(value)) == value
    for value in (2**64, -(2**63) - 1, 10**30, -(10**400)):
        with pytest.raises(NotJson):
            json_bytes({"n": value})


# -- canonical -------------------------------------------------------------------------------------


@given(json_values(20))
def test_canonical_bytes_are_dag_cbor(value: Any) -> None:
    assert canonical(value) == dag_cbor.encode(plus_zero(value))
    assert same(from_canonical(canonical(value)), plus_zero(value))


@given(node_data(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(data: dict[str, Any], chance: Any) -> None:
    keys = list(data)
    chance.shuffle(keys)
    assert canonical(OrderedDict((key, data[key]) for key in keys)) == canonical(data)
    assert cid_of({key: data[key] for key in keys}) == cid_of(data)
    assert fingerprint({key: data[key] for key in keys}) == fingerprint(data)


@given(json_values(), json_values())
def test_different_values_have_different_ids(left: Any, right: Any) -> None:
    assert (cid_of(left) == cid_of(right)) == same(plus_zero(left), plus_zero(right))


# -- CIDs ------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_raw_cids_are_those_of_others(data: bytes) -> None:
    cid = cid_of_bytes(data)
    assert cid == by_others("raw", data)
    assert CID.decode(cid).codec.name == "raw"
    assert is_cid(cid)
    assert matches_cid(cid, data)
    assert not matches_cid(cid, data + b"x")


@given(json_values())
def test_value_cids_are_those_of_others(value: Any) -> None:
    cid = cid_of(value)
    assert cid == by_others("dag-cbor", dag_cbor.encode(plus_zero(value))) == cid_of_block(canonical(value))
    assert CID.decode(cid).codec.name == "dag-cbor"
    assert is_cid(cid)
    assert matches_cid(cid, canonical(value))


def test_known_ids() -> None:
    """Fixed once and for all: an id that changes would orphan everything stored under it."""
    assert cid_of_bytes(b"") == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
    assert cid_of({}) == "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua"


@given(texts())
def test_a_text_is_hardly_ever_a_cid(text: str) -> None:
    assert not is_cid(text)


@pytest.mark.parametrize(
    "text",
    [
        "b",
        "bafy",
        cid_of_bytes(b"x").upper(),
        cid_of_bytes(b"x")[:-1],
        cid_of_bytes(b"x") + "a",
        "z" + cid_of_bytes(b"x")[1:],
        by_others("dag-pb", b"x"),
        str(CID("base32", 1, "raw", ("sha2-512", hashlib.sha512(b"x").digest()))),
        "QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n",
    ],
)
def test_other_ids_are_not_ours(text: str) -> None:
    assert not is_cid(text)


def test_references_are_found_in_their_order() -> None:
    page, pdf = reference(cid_of_bytes(b"a"), 1, "text/html"), reference(cid_of_bytes(b"b"), 1, "application/pdf")
    data = {"first": [page, {"inner": pdf}], "second": page, "no": {"$cid": 5}, "text": "$cid"}
    assert referred_cids(data) == [page["$cid"], pdf["$cid"], page["$cid"]]
    assert referred_cids("no reference") == []


@given(node_data())
def test_fingerprints_are_short_and_stable(data: dict[str, Any]) -> None:
    found = fingerprint(data)
    assert found == hashlib.sha256(dag_cbor.encode(plus_zero(data))).hexdigest()[:16]
    assert fingerprint(json.loads(json.dumps(data))) == found
