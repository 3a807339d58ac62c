"""An executable that answers as `mlserver score`, for tests of `mlserver.scoring`: its model doubles numbers.

Columns make it fail on purpose: `exit` ends the process with code 3, `raise` rejects a request with a number above 100, `log`
writes to standard error, `outside` answers with bytes outside of the memory, and `wait` waits for a second.
"""

import json
import os
import pathlib
import socket
import sys
import time
from array import array
from typing import Any, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from mlserver._scoring.memory import aligned
from mlserver._worker.frames import FrameKind, FrameReader, write_frame
from mlserver.version import __version__

#: Changes what the child says about itself.
CHANGES = json.loads(os.environ.get("SCORING_CHILD", "{}"))

INPUTS = [{"name": name, "datatype": "FP64", "shape": [-1, 1]} for name in CHANGES.get("inputs", [])]
LOADED = {
    "ready": True,
    "name": "double",
    "batches": True,
    "metadata": {"platform": "test", "inputs": INPUTS, "outputs": [], "parameters": {"backend": "native"}},
}


class Child:
    """The process. It answers one frame after the other."""

    def __init__(self) -> None:
        self.socket = socket.socket(fileno=0)
        self.reader = FrameReader()
        self.memory = -1

    def run(self) -> None:
        room = self.reader.room()
        data, ancillary, _, _ = self.socket.recvmsg(len(room), socket.CMSG_SPACE(4))
        if ancillary:
            self.memory = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        room[: len(data)] = data
        count = len(data)
        while count:
            for header, head, tail in self.reader.filled(count):
                self.answer(header.kind, header.id, head, tail)
            count = self.socket.recv_into(self.reader.room())

    def send(self, kind: int, id: int, head: Dict[str, Any], tail: List[Any] = ()) -> None:  # type: ignore[assignment]
        self.socket.sendall(b"".join(write_frame(kind, id, head, tuple(tail))[0]))

    def answer(self, kind: int, id: int, head: Dict[str, Any], tail: Any) -> None:
        if kind == FrameKind.HELLO:
            assert head["parent"] == os.getppid()
            self.send(FrameKind.READY, 0, {"protocol": 2, "version": CHANGES.get("version", __version__)})
        elif kind == FrameKind.LOAD:
            if head["location"].endswith("/missing"):
                self.send(FrameKind.ERROR, id, {"kind": "model", "message": "no model found in it", "status": 500})
            else:
                self.send(FrameKind.LOADED, id, {**LOADED, **CHANGES.get("loaded", {})})
        elif kind == FrameKind.PREDICT:
            self.predict(id, head, tail)

    def predict(self, id: int, head: Dict[str, Any], tail: Any) -> None:
        outputs, buffers, at = [], [], 0
        region = head.get("answer")
        for tensor in head["inputs"]:
            name, size = tensor["name"], tensor["size"]
            if "offset" in tensor:
                data = os.pread(self.memory, size, tensor["offset"])
                assert len(data) == size
            else:
                data, at = bytes(tail[at : at + size]), at + aligned(size)
            numbers = memoryview(data).cast("d").tolist() if tensor["datatype"] == "FP64" else []
            if name == "exit" and 1.0 in numbers:
                os.write(2, b"about to exit\n")
                os._exit(3)
            if name == "wait":
                time.sleep(1)
            if name == "log":
                os.write(2, b"a line of the log\n")
            if name == "raise" and max(numbers, default=0) > 100:
                error = {"kind": "bad_request", "message": "a number exceeds 100", "status": 422}
                return self.send(FrameKind.ERROR, id, error)
            if tensor["datatype"] == "FP64":
                data = doubles([2 * number for number in numbers])
            output = {key: tensor[key] for key in ("name", "datatype", "shape", "size", "count") if key in tensor}
            if name == "outside":
                output["offset"] = 1 << 40
            elif region and len(data) <= region["size"]:
                assert os.pwrite(self.memory, data, region["offset"]) == len(data)
                output["offset"] = region["offset"]
                region = {"offset": region["offset"] + aligned(len(data)), "size": region["size"] - aligned(len(data))}
            else:
                buffers += [data, bytes(-len(data) % 8)]
            outputs.append(output)
        return self.send(FrameKind.ANSWER, id, {"outputs": outputs}, buffers)


def doubles(numbers: List[float]) -> bytes:
    return array("d", numbers).tobytes()


if __name__ == "__main__":
    assert sys.argv[1:] == ["score"]
    Child().run()
