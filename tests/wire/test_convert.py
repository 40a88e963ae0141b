"""Every message survives the wire; what cannot be written is refused with a sentence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.wire import agent_pb2, codec
from stoker.wire.codec import Decoder, encode
from stoker.wire.messages import Assign, DeviceSample, FromAgent, FromControl, Outcome, Progress, Report
from tests.profiles import examples
from tests.wire.vocabulary import KINDS, instances


def proto_of(message: Any) -> Any:
    return codec.WRITERS[type(message)](message)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(40))  # of each: their parts are tried by themselves, too
@given(data=st.data())
def test_every_message_survives_the_round_trip(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    proto = proto_of(message)
    again = type(proto).FromString(proto.SerializeToString())
    assert codec.READERS[kind](again) == message


@given(instances(FromAgent))
def test_bytes_from_an_agent(message: FromAgent) -> None:
    assert Decoder(FromAgent).read(encode(message)[0]) == message


@given(instances(FromControl))
def test_bytes_from_control(message: FromControl) -> None:
    assert Decoder(FromControl).read(encode(message)[0]) == message


@given(instances(Report))
def test_one_report_by_itself(report: Report) -> None:
    alone = FromAgent(reports=(report,))
    assert Decoder(FromAgent).read(encode(alone)[0]) == alone


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_record_and_message_have_the_same_fields(kind: type[Any]) -> None:
    theirs = {field.name for field in getattr(agent_pb2, kind.__name__).DESCRIPTOR.fields}
    ours = set(kind.__struct_fields__)
    if kind is Report:
        ours = {"number", *map(codec.arm, codec.BODIES)}
    assert theirs - {"fragment", "last_fragment"} == ours


def test_every_message_of_the_contract_has_a_record() -> None:
    assert set(agent_pb2.DESCRIPTOR.message_types_by_name) == {kind.__name__ for kind in KINDS}


def test_unknown_is_absent_and_zero_is_zero() -> None:
    unknown = proto_of(DeviceSample("gpu"))
    zero = proto_of(DeviceSample("gpu", memory_used=0, power=0.0))
    assert not unknown.HasField("memory_used")
    assert zero.HasField("memory_used")
    assert zero.HasField("power")
    assert codec.READERS[DeviceSample](zero) == DeviceSample("gpu", memory_used=0, power=0.0)


def test_an_empty_output_is_not_a_missing_one() -> None:
    empty = Outcome("job", 1, "w", "completed", output=b"")
    assert codec.READERS[Outcome](proto_of(empty)).output == b""


def test_a_lone_surrogate_goes_out_as_a_question_mark() -> None:
    # A handler may raise with any text; it must not break the session of its node.
    torn = FromAgent(reports=(Report(1, Outcome("job", 1, "w", "failed", error="bad \ud800 text")),))
    read = Decoder(FromAgent).read(encode(torn)[0])
    assert read is not None
    (report,) = read.reports
    assert isinstance(report.body, Outcome)
    assert report.body.error == "bad ? text"


@pytest.mark.parametrize(
    "message",
    [Progress("job", -1, b""), Progress("job", 2**32, b""), Assign("job", 1, "w", input="text")],  # type: ignore[arg-type]
)
def test_what_cannot_be_written_is_named(message: Any) -> None:
    with pytest.raises(codec.WireError, match=f"a {type(message).__name__} cannot be written"):
        encode(message)


def test_bytes_that_are_no_message() -> None:
    with pytest.raises(codec.WireError, match="a message of 3 bytes cannot be read as FromAgent"):
        Decoder(FromAgent).read(b"\xff\xff\xff")


def test_a_report_body_of_a_later_version_is_refused() -> None:
    with pytest.raises(codec.WireError, match="report 9 has no body"):
        Decoder(FromAgent).read(agent_pb2.FromAgent(reports=[agent_pb2.Report(number=9)]).SerializeToString())


def test_a_converter_is_compiled_when_it_is_first_used() -> None:
    """Each side of a session writes what the other one reads."""
    listing = (
        "from stoker.wire import codec\n"
        "print(len(codec.WRITERS), len(codec.READERS))\n"
        "codec.Decoder(codec.FromControl)\n"
        "print(len(codec.WRITERS), codec.FromControl in codec.READERS, codec.FromAgent in codec.READERS)\n"
    )
    found = subprocess.run([sys.executable, "-P", "-c", listing], capture_output=True, text=True, check=True)
    assert found.stdout == "1 1\n1 True False\n"
