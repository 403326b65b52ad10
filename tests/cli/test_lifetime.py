"""A command's process imports onnx in parts, other things late, and ends at once; none may be seen in what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

PLAIN = "import sys, onnx\nfrom graphopt.cli.app import run\nsys.exit(run(sys.argv[1:]))"
IN_PARTS = """
import sys
from graphopt.cli.lifetime import import_in_parts
import_in_parts()
"""
EINSUM = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3, 4] x, float[n, 4, 5] w) => (float[n, 3, 5] y) {
   zero = Constant <value = float {0.0}> ()
   a = Identity (x)
   b = Add (a, zero)
   y = Einsum <equation = "bij,bjk->bik"> (b, w)
}"""


def python(code: str, *words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [("--level", "basic"), ("--level", "all"), ("--opset", "21"), ("--verify",)], ids=str)
@pytest.mark.parametrize("model", ["small", "einsum"])
def test_the_command_writes_what_it_writes_with_all_of_onnx(
    model_file: Path, tmp_path: Path, model: str, words: tuple[str, ...]
) -> None:
    if model == "einsum":
        model_file = tmp_path / "einsum.onnx"
        onnx.save(onnx.parser.parse_model(EINSUM), model_file)
    python(PLAIN, "optimize", model_file, tmp_path / "plain.onnx", *words)
    subprocess.run(
        [sys.executable, "-m", "graphopt", "optimize", model_file, tmp_path / "parts.onnx", *words],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert (tmp_path / "parts.onnx").read_bytes() == (tmp_path / "plain.onnx").read_bytes()


def test_a_plain_run_needs_parts_of_onnx_only(model_file: Path, tmp_path: Path) -> None:
    code = IN_PARTS + (
        "from graphopt.cli.app import run\nrun(sys.argv[1:])\n"
        "unneeded = 'importlib.metadata', 'onnx.compose', 'onnx.helper', 'google.protobuf.text_format'\n"
        "print(type(sys.modules['onnx']).__name__, [name for name in unneeded if name in sys.modules])"
    )
    assert python(code, "optimize", model_file, tmp_path / "out.onnx", "-q") == "_InParts []\n"


@pytest.mark.parametrize(
    "use",
    [
        "from onnx import ModelProto, helper, defs; assert defs.has('Relu') and helper.make_node('Relu', [], [])",
        "import onnx.helper, onnx.numpy_helper, onnx.compose; onnx.helper.make_node('Relu', [], [])",
        "import onnx; assert onnx.load(sys.argv[1]) == onnx.load_model(sys.argv[1])",
        "import onnx; onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)",
        "import onnx; assert onnx.__version__.count('.') >= 2",
        "import onnx; assert onnx.TensorProto is onnx.onnx_pb.TensorProto and onnx.IR_VERSION > 7",
        "from onnx import *; assert ModelProto and save_model and version_converter",
        "import onnx; onnx.save(onnx.load(sys.argv[1]), sys.argv[1] + '.json'); onnx.load(sys.argv[1] + '.json')",
        "import onnx.reference, onnx; onnx.reference.ReferenceEvaluator(onnx.load(sys.argv[1]))",
        "import onnx; onnx.version_converter.convert_version(onnx.load(sys.argv[1]), 21)",
        "from google.protobuf import text_format; import onnx; text_format.Parse('', onnx.ModelProto())",
        "from google.protobuf.internal import python_message; assert python_message.GeneratedProtocolMessageType",
        "import onnx, importlib; assert importlib.reload(onnx).load",
        "import onnx\ntry: onnx.nonsense\nexcept AttributeError as error: assert 'nonsense' in str(error)\nelse: assert 0",
        "import onnx, pickle; assert pickle.loads(pickle.dumps(onnx.ModelProto())) == onnx.ModelProto()",
    ],
)
def test_every_part_is_there_when_it_is_asked_for(model_file: Path, use: str) -> None:
    python(IN_PARTS + use, model_file)


def test_what_is_imported_for_nothing_waits(model_file: Path, tmp_path: Path) -> None:
    code = IN_PARTS + (
        "from graphopt.cli.app import run\nrun(sys.argv[1:])\nfrom graphopt.cli.lifetime import _UNUSED\n"
        "print([name for name in _UNUSED if type(sys.modules.get(name)).__name__ != '_Waiting'])\n"
    )
    assert python(code, "optimize", model_file, tmp_path / "out.onnx", "-q", "--level", "all") == "[]\n"


@pytest.mark.parametrize(
    "use",
    [
        "import numpy as np, numpy.typing; assert numpy.typing.NDArray[np.float32].__args__[0] != np.float32",
        "from numpy._typing import ArrayLike, NDArray; assert NDArray is not list",
        "import numpy as np; assert np.ma.masked_equal([1, 2], 1).sum() == 2 and np.random.default_rng(0).random() < 1",
        "import numpy as np; assert np.linalg.svd(np.eye(2)).S.tolist() == [1, 1] and np.add.__doc__",
        "import numpy as np, pickle; assert pickle.loads(pickle.dumps(np.arange(3))).tolist() == [0, 1, 2]",
        "import numpy as np, ctypes; assert np.zeros(2).ctypes.data_as(ctypes.c_void_p) and np.ctypeslib.as_ctypes",
        "import numpy as np; assert np.dtype('i4,f8').itemsize == 12 and np.asarray(memoryview(b'ab')).size == 2",
        "import numpy as np; np.show_runtime()",
        "import copy, fnmatch, textwrap; assert copy.copy([1]) == [1] and fnmatch.filter(['a'], textwrap.dedent(' a'))",
        "import traceback, linecache, tokenize; assert 'import' in linecache.getline(traceback.__file__, 3)",
        "import platform, importlib; assert platform.system() and importlib.reload(platform).machine()",
        "from calendar import *; assert isleap(2000)",
        "import inspect; assert inspect.getsource(inspect.getsource) and inspect.signature(inspect.getsource)",
        "import onnxruntime; assert onnxruntime.__version__",
    ],
)
def test_what_waits_is_there_when_it_is_asked_for(use: str) -> None:
    python(IN_PARTS + use)


def test_all_names_are_those_of_onnx() -> None:
    show = "print(sorted(name for name in vars(onnx) if name != '__builtins__'))"
    load = "import onnx\nonnx.load\n"
    whole = python("import onnx\n" + show)
    assert set(eval(python(IN_PARTS + load + show))) >= set(eval(whole))


def test_what_is_imported_already_stays_as_it_is() -> None:
    code = "import onnx\nbefore = vars(onnx).copy()" + IN_PARTS + "assert vars(sys.modules['onnx']) == before"
    assert python(code) == ""


def test_the_end_calls_and_writes_what_is_due() -> None:
    code = """
import atexit, sys, weakref
from graphopt.cli.lifetime import end
class Held: pass
held = Held()
weakref.finalize(held, print, "finalized")
atexit.register(print, "registered")
sys.stdout.write("written ")
end(3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "written registered\nfinalized\n")


def test_the_end_waits_for_threads() -> None:
    code = """
import threading, time
from graphopt.cli.lifetime import end
def work():
    time.sleep(0.3)
    print("done")
threading.Thread(target=work).start()
end(0)
"""
    assert python(code) == "done\n"
