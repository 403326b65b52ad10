"""Another converter in a separate process, which it may crash: `python -m benchmarks.conversion_peer TOOL`."""

from __future__ import annotations

import struct
import subprocess
import sys
import warnings
from threading import Timer
from typing import IO

import onnx

_PATIENCE = 60.0


class PeerError(Exception):
    """The converter reported that it cannot convert."""


class PeerCrashError(Exception):
    """The converter ended its process, or took too long."""


class Peer:
    """A converter behind a pipe.

    Args:
        tool: `onnx` or `onnxscript`.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self._child: subprocess.Popen[bytes] | None = None

    def convert(self, model: onnx.ModelProto, target: int) -> onnx.ModelProto:
        """Convert a model.

        Raises:
            PeerError: it cannot.
            PeerCrashError: it crashed.
        """
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-m", "benchmarks.conversion_peer", self.tool]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        watch = Timer(_PATIENCE, child.kill)
        watch.start()
        try:
            data = model.SerializeToString()
            child.stdin.write(struct.pack("<qq", target, len(data)) + data)
            child.stdin.flush()
            fine, answer = _received(child.stdout)
        except (BrokenPipeError, EOFError):
            child.wait()
            raise PeerCrashError(f"{self.tool} ended with code {child.returncode}") from None
        finally:
            watch.cancel()
        if not fine:
            raise PeerError(answer.decode(errors="replace"))
        return onnx.ModelProto.FromString(answer)

    def close(self) -> None:
        """End the process."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.wait()


def _received(stream: IO[bytes]) -> tuple[bool, bytes]:
    """A flag and a message.

    Raises:
        EOFError: the other side has ended.
    """
    head = stream.read(16)
    if len(head) < 16:
        raise EOFError
    flag, length = struct.unpack("<qq", head)
    return bool(flag), stream.read(length)


def _convert(tool: str, model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    if tool == "onnx":
        from onnx import version_converter

        return version_converter.convert_version(model, target)
    import onnx_ir
    from onnxscript import version_converter as other

    view = onnx_ir.from_proto(model)  # a proto is only read, and the result is not written back to it
    other.convert_version(view, target, fallback=False)
    return onnx_ir.to_proto(view)


def main(tool: str) -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore")
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # output printed by the converter is not an answer
    while head := source.read(16):
        target, length = struct.unpack("<qq", head)
        model = onnx.ModelProto.FromString(source.read(length))
        try:
            fine, answer = 1, _convert(tool, model, target).SerializeToString()
        except Exception as error:
            fine, answer = 0, str(error).encode()
        answers.write(struct.pack("<qq", fine, len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
