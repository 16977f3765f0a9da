"""Makes a wheel of llama-cpp-python that serves every x86-64 processor, with our kernels in it.

    .venv/bin/python scripts/portable_wheel.py FOLDER

llama.cpp's code for the processor is built once for each of its fourteen levels of instructions,
and the best that a processor has is chosen when the wheel is used; so are our kernels. They prove
themselves at the first start. docs/publishing.md says what the wheel needs, and how to publish it.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import llama_wheel
from bootstrap_steps import Failure, say
from llama_backend import require_build_tools, this_machine
from llama_ladder import Rung

from localspec.core.errors import LocalspecError
from localspec.kernels import build
from localspec.kernels.compiler import Compiler
from localspec.kernels.instruction_sets import headers, of_machine

ALL = Rung(
    "for every processor of this kind",
    (
        "-DGGML_NATIVE=OFF",
        "-DGGML_BACKEND_DL=ON",
        "-DGGML_CPU_ALL_VARIANTS=ON",
    ),
    work=3.4,
)
LIBRARIES = Path("llama_cpp", "lib")
_LEFT_OUT = ("include/", "llama_cpp/lib/cmake/", "llama_cpp/lib/pkgconfig/")
_EPOCH = (2020, 2, 2, 0, 0, 0)


def make(folder: Path, work: Path) -> Path:
    """Build in ``work``, where a later call goes on, and store the wheel in ``folder``."""
    machine = this_machine()
    require_build_tools("cpu", machine)
    source = llama_wheel.read_source(llama_wheel.ROOT / "requirements" / "llama.lock")
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work / "wheel", ignore_errors=True)
    log = work / "build.log"
    built = llama_wheel.build_wheel(source, "cpu", machine, ALL, work, Path(sys.executable), log)
    return repacked(audited(built, work), folder)


def audited(built: Path, work: Path) -> Path:
    """The wheel with the OpenMP library in it, and the tag of the oldest systems that it runs on.

    This comes before our kernels do: auditwheel changes libraries, and theirs has a digest. They
    need nothing but llama.cpp's and the C++ library.
    """
    if shutil.which("auditwheel") is None:
        say("auditwheel is not on PATH: the wheel is for systems like this one, with libgomp")
        return built
    place = work / "audited"
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run(["auditwheel", "repair", "-w", place, built], check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def repacked(built: Path, folder: Path) -> Path:
    """The same wheel without what only compilers need, stripped, and with our kernels."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "wheel"
        with zipfile.ZipFile(built) as bundle:
            bundle.extractall(root, [n for n in bundle.namelist() if not n.startswith(_LEFT_OUT)])
        for library in sorted((root / LIBRARIES).glob("*.so*")):
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
        (root / LIBRARIES).chmod(0o755)
        compiler = Compiler(
            tuple(os.environ.get("CXX", "c++").split()), root / LIBRARIES, of_machine()
        )
        place = build.shipped_folder(root / LIBRARIES)
        kernels = build.store(compiler, headers(), [place])
        if kernels.left_out:
            raise Failure(f"the compiler is too old for {', '.join(kernels.left_out)}")
        subprocess.run(["strip", "--strip-unneeded", kernels.path], check=True)
        if shutil.which("patchelf"):
            # llama.cpp's libraries are loaded before; auditwheel judges files, and looks for them.
            line = ["patchelf", "--set-rpath", "$ORIGIN/../..", kernels.path]
            subprocess.run(line, check=True)
        digest = hashlib.sha256(kernels.path.read_bytes()).hexdigest()
        kernels.path.with_name(f"{kernels.path.name}.sha256").write_text(f"{digest}\n")
        folder.mkdir(parents=True, exist_ok=True)
        return _packed(root, folder / built.name)


def judged(wheel: Path) -> str:
    """The oldest systems that the finished wheel runs on, by auditwheel's word; "" without it.

    Raises:
        Failure: the wheel is named for older ones.
    """
    if shutil.which("auditwheel") is None:
        return ""
    line = ["auditwheel", "show", wheel]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    tag = re.search(r'platform\s+tag:\s+"([^"]+)"', said)
    if tag is None or tag[1] not in wheel.name:
        raise Failure(f"auditwheel calls {wheel} one for {tag[1] if tag else 'no known system'}")
    return tag[1]


def _packed(root: Path, wheel: Path) -> Path:
    """The folder as a wheel, whose bytes depend on the contents alone."""
    (record,) = root.glob("*.dist-info/RECORD")
    files = sorted(path for path in root.rglob("*") if path.is_file() and path != record)
    files = [path for path in files if path.name != ".lock"]  # of the kernels' build
    lines = []
    for path in files:
        found = hashlib.sha256(path.read_bytes()).digest()
        digest = base64.urlsafe_b64encode(found).rstrip(b"=").decode("ascii")
        lines.append(f"{path.relative_to(root)},sha256={digest},{path.stat().st_size}\n")
    record.write_text("".join([*lines, f"{record.relative_to(root)},,\n"]), encoding="utf-8")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for path in [*files, record]:
            entry = zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path.suffix == ".so" else 0o644) << 16
            bundle.writestr(entry, path.read_bytes())
    return wheel


def main() -> int:
    """One line for the wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the wheel goes")
    parser.add_argument("--from", dest="built", type=Path, help="a wheel that was built so before")
    options = parser.parse_args()
    try:
        if options.built is not None:
            with tempfile.TemporaryDirectory() as work:
                wheel = repacked(audited(options.built, Path(work)), options.folder)
        else:
            wheel = make(options.folder, options.folder / "work")
        tag = judged(wheel)
    except (Failure, LocalspecError) as failure:
        say(str(failure))
        return 1
    except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        say(f"the wheel cannot be made: {error}")
        return 1
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)" + (f", {tag}" if tag else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
