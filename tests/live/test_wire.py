"""Bytes that travel: what goes in comes out, and nothing else is believed."""

import json

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from performative.live.wire import Malformed, decode, encode, flatten, split_head, unflatten

KINDS = st.sampled_from(["float32", "float64", "int32", "int64", "uint8", "bool"])
ARRAYS = st.dictionaries(
    st.text(max_size=8),
    KINDS.flatmap(lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0))),
    max_size=4,
)


@given(ARRAYS)
@settings(max_examples=50, deadline=None)
def test_what_goes_in_comes_out(arrays):
    about, back = decode(encode({"round": 3}, arrays))
    assert about == {"round": 3}
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_other_bytes_are_refused(junk):
    for message in (junk, b"PFW1" + junk, b"PFW1" + len(junk).to_bytes(4, "little") + junk):
        with pytest.raises(Malformed):
            decode(message)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_message_that_was_changed_is_refused_or_still_whole(data):
    message = bytearray(encode({"round": 1}, {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2, bool)}))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        about, arrays = decode(bytes(message))
    except Malformed:
        return
    assert isinstance(about, dict)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_an_array_that_comes_twice_travels_once():
    model = np.arange(2000.0)
    arrays = {"theta": model, "deployed": model.copy(), "other": model + 1, "flat": model.reshape(2, 1000)}
    message = encode({}, arrays)
    assert 3 * model.nbytes < len(message) < 4 * model.nbytes
    _, back = decode(message)
    assert all(np.array_equal(back[name], array) and back[name].shape == array.shape for name, array in arrays.items())
    assert back["deployed"] is back["theta"]
    head, rest = split_head(message)
    assert head + rest == message and len(rest) == 3 * model.nbytes


@pytest.mark.parametrize(
    "entry", [["b", "float64", [2], 1], ["b", "float64", [2], -1], ["b", "float64", [2], True], ["b", "int64", [2], 0],
              ["b", "float64", [1, 2], 0], ["b", "float64", [2], 0, 0], ["b", "float64", [2], "a"]],
)  # fmt: skip
def test_an_array_that_names_a_wrong_one_is_refused(entry):
    head = json.dumps({"about": {}, "arrays": [["a", "float64", [2]], entry]}).encode()
    with pytest.raises(Malformed):
        decode(b"PFW1" + len(head).to_bytes(4, "little") + head + bytes(16))
    good = head.replace(json.dumps(entry).encode(), b'["b", "float64", [2], 0]')
    assert decode(b"PFW1" + len(good).to_bytes(4, "little") + good + bytes(16))[1]["b"].shape == (2,)


def test_objects_and_keys_do_not_travel():
    with pytest.raises(ValueError, match="only float16"):
        encode({}, {"a": np.asarray([object()])})


def test_a_tree_must_be_met_exactly():
    like = {"w": np.zeros((2, 3)), "b": np.zeros(3)}
    good = flatten(like, "theta")
    assert unflatten(like, good, "theta")["w"].shape == (2, 3)
    for name, wrong, words in [
        ("theta['b']", np.zeros(1), r"shape \(3,\); got \(1,\)"),
        ("theta['b']", np.zeros(3, np.float32), "must have dtype float64; got float32"),
        ("theta['c']", np.zeros(3), "is unknown"),
    ]:
        with pytest.raises(Malformed, match=words):
            unflatten(like, {**good, name: wrong}, "theta")
    with pytest.raises(Malformed, match="is missing"):
        unflatten(like, {"theta['b']": np.zeros(3)}, "theta")
