#!/bin/sh
# Makes the stubs of wire/agent.proto. Run from the repository root; PYTHON names the interpreter that has
# grpcio-tools. OUT is where `stoker/wire/` is written: src by default, a scratch folder in the test that
# compares. The path through src/ is what makes the generated imports read `stoker.wire.agent_pb2`.
set -eu
OUT="${OUT:-src}"
exec "${PYTHON:-python3}" -m grpc_tools.protoc -I src \
    --python_out="$OUT" --pyi_out="$OUT" --grpc_python_out="$OUT" \
    src/stoker/wire/agent.proto
