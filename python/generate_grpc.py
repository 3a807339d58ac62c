"""Generates `mlserver/grpc/*_pb2*.py` from `proto/`.

    python3.8 -m venv tools && tools/bin/pip install grpcio-tools==1.51.3
    tools/bin/python python/generate_grpc.py

The old version is intentional: the generated code works with all versions of protobuf from 3.20 on, and does not require a
recent grpcio.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent / "proto"
OUT = HERE / "mlserver" / "grpc"


def main() -> None:
    """Runs the compiler, and makes the imports in the generated files relative."""
    schemas = ["dataplane.proto", "model_repository.proto"]
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTO}",
        f"--python_out={OUT}",
        f"--grpc_python_out={OUT}",
    ]
    subprocess.run([*command, *schemas], check=True)
    for path in OUT.glob("*_pb2_grpc.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(
            re.sub(r"^import (\w+_pb2) as", r"from . import \1 as", text, flags=re.MULTILINE), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
