"""`Model`: a view over a whole ONNX model, loaded once and flushed once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import onnx

from graphopt.ir.graph import Graph, Node
from graphopt.ir.seal import SealedDict, SealedList, check_unsealed, shown, write
from graphopt.ir.slices import FileSlice
from graphopt.ir.tensor import Tensor

if TYPE_CHECKING:
    from graphopt.ir.files import ExternalData


class IrModel(Protocol):
    """The interface of `onnx_ir.Model`."""

    @property
    def graph(self) -> Any:
        """The main graph."""

    @property
    def functions(self) -> Any:
        """Its functions."""

    @property
    def opset_imports(self) -> Any:
        """Versions of operator domains."""

    @property
    def ir_version(self) -> Any:
        """The IR version."""


class Program(Protocol):
    """The interface of `torch.onnx.ONNXProgram`."""

    model: Any
    model_proto: Any


Source = str | os.PathLike[str] | bytes | onnx.ModelProto | IrModel | Program
"""The sources of a model: a path, serialized bytes, a proto, a model of onnx-ir, an exported program."""


ZEROED_KEY = "graphopt.zeroed_weights"
"""Metadata: how many weights were set to zero as they have no effect, except next to infinities."""


REMOVED_KEY = "graphopt.removed_channels"
"""Metadata: how many channels were removed as their filters are zero. With infinite inputs these gave NaN."""


BOUNDED_KEY = "graphopt.bounded_softmax"
"""Metadata: in how many `Softmax` masked probabilities are no longer zero. Times an infinity, zeros gave NaN."""


class Model:
    """A model: its main graph, its functions, and everything around them.

    Attributes:
        base: the folder that external data is relative to, or None.
        graph: the main graph.
        functions: the model-local functions, as graphs.
        metadata: `metadata_props` as a dict; changes are written by `flush`. A pass uses `Rewriter.set_metadata`.
        path: the file it was read from, or None.
        whole: all bytes of that file, or None; a pipe can be read only once.
        inplace: whether `flush` may write into `proto`.
        lifted: whether weights are still in files.
        is_apart: whether it had weights in files beside it when it was read.
        opaque: which external data was left unread, `missing` or `all`; None if all was to be read.
    """

    def __init__(self, proto: onnx.ModelProto, base: Path | None = None) -> None:
        self._proto = proto
        self._undo: list[tuple[Any, ...]] = []
        """The undo log: inverses of recent changes, undone last first; see `graphopt.rewrite.journal`."""
        self._number = 0
        self.base = base
        self.path: Path | None = None
        self.whole: FileSlice | None = None
        self.inplace = False
        self.lifted = self.is_apart = False
        self.opaque: str | None = None
        self.graph: Graph
        self.functions: list[Graph] = SealedList()
        self.metadata: dict[str, str] = SealedDict((p.key, p.value) for p in proto.metadata_props)
        self.added_opsets: dict[str, int] = SealedDict()
        self._ir_version = proto.ir_version
        self._names: set[str] | None = None
        self._counters: dict[str, int] = {}

    @classmethod
    def load(cls, source: Source, *, inplace: bool = False, opaque: str | None = None) -> Model:
        """Read a model.

        Args:
            source: a path (external data is found beside it), serialized bytes, a `ModelProto`, an `onnx_ir.Model` or
                an `ONNXProgram`.
            inplace: for a `ModelProto`, let `flush` change it instead of making a new one.
            opaque: `missing` keeps missing external data as a reference, `all` keeps all of it; no pass can read its
                bytes then.

        Raises:
            ModelError: the file cannot be read, is not an ONNX model, or its graph is invalid.
        """
        from graphopt.ir.files import read

        return read(source, inplace=inplace, opaque=opaque)

    def __setattr__(self, name: str, value: object) -> None:
        check_unsealed(f"{name} of a model")
        write(self, name, value)

    @property
    def proto(self) -> onnx.ModelProto:
        """The proto that it was read from; never changed unless the model was loaded `inplace`."""
        return shown(self._proto)

    @property
    def ir_version(self) -> int:
        """The IR version that the model will have when it is written."""
        return self._ir_version

    @property
    def changed(self) -> bool:
        """Whether anything differs from the source."""
        return (
            self.graph.changed
            or any(function.changed for function in self.functions)
            or len(self.functions) != len(self._proto.functions)
            or bool(self.added_opsets)
            or self._ir_version != self._proto.ir_version
            or self.metadata != {p.key: p.value for p in self._proto.metadata_props}
        )

    def opset(self, domain: str = "") -> int:
        """The imported version of an operator domain, 0 if it is not imported."""
        return self.graph.opset(domain)

    def graphs(self) -> Iterator[Graph]:
        """Every graph: the main one, functions, and all their subgraphs, outer before inner."""
        for top in (self.graph, *self.functions):
            yield from _with_subgraphs(top)

    def fresh_name(self, base: str) -> str:
        """A value name made from `base` that no scope of the model uses; it is reserved.

        No node has it either: new nodes get the names of their outputs, and runtimes refuse two nodes of one name.
        """
        if self._names is None:
            write(self, "_names", self._all_names())
        names = self._names
        assert names is not None
        name, last = base, self._counters.get(base)
        while name in names or not name:
            number = self._counters.get(base, 0) + 1
            self._counters[base] = number
            name = f"{base}_{number}"
        names.add(name)
        self._undo.append((self._take_back, name, base, last))
        return name

    def _take_back(self, name: str, base: str, last: int | None) -> None:
        """Undo `fresh_name`."""
        assert self._names is not None
        self._names.discard(name)
        if last is None:
            self._counters.pop(base, None)
        else:
            self._counters[base] = last

    def next_number(self) -> int:
        """A number for a new initializer, greater than all before."""
        write(self, "_number", self._number + 1)
        return self._number

    def _all_names(self) -> set[str]:
        from graphopt.ir.load import trained_names

        names = trained_names(self._proto)
        for graph in self.graphs():
            names.update(graph.values, graph.annotated, [node.name for node in graph])
            if isinstance(graph._proto, onnx.GraphProto):
                names.update(note.tensor_name for note in graph._proto.quantization_annotation)
            names.update(info.name for info in graph._proto.value_info)
        return names

    def flush(self) -> onnx.ModelProto:
        """The model as a proto, weights included. Without changes it equals the source byte for byte."""
        from graphopt.ir.flush import flush

        return flush(self)

    def save(self, path: str | os.PathLike[str], external_data: ExternalData | None = None) -> None:
        """Write the model and its external data to files, atomically.

        Symbolic links are followed; a device or a pipe is written into. This model's own earlier data that no file
        mentions any more is removed.

        Args:
            path: the file to write.
            external_data: how to lay out external weights. By default weights that were external stay
                external, and all become external if the file would exceed 2 GiB.

        Raises:
            ModelError: the file cannot be written.
        """
        from graphopt.ir.files import as_path
        from graphopt.ir.saving import write

        write(self, as_path(path), external_data)

    def verify(self) -> None:
        """Check the invariants of the view.

        Raises:
            EngineError: an invariant does not hold.
        """
        from graphopt.ir.check import check

        check(self)

    def text(self) -> str:
        """The model in ONNX text form."""
        return onnx.printer.to_text(self.flush())

    def unread(self) -> list[Tensor]:
        """The tensors that were left as references, on request."""
        if self.opaque is None:
            return []
        held = [v.tensor for graph in self.graphs() for v in graph.initializers]
        held += [value for node in self.nodes() for value in node.attrs.values() if isinstance(value, Tensor)]
        return [tensor for tensor in held if tensor is not None and tensor.is_opaque]

    def nodes(self) -> Iterator[Node]:
        """All nodes of all graphs."""
        if not self.functions and not self.graph.owners:
            return iter(self.graph)
        return (node for graph in self.graphs() for node in graph)

    def __repr__(self) -> str:
        return f"Model({self.graph!r}, {len(self.functions)} functions)"


def _with_subgraphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in list(graph.owners):
        for subgraph in node.subgraphs.values():
            yield from _with_subgraphs(subgraph)
