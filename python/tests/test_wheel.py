"""The wheel says of itself what is true: its tag, and the libraries its program needs."""

import re
import struct
import zipfile
from pathlib import Path

import pytest

#: What a manylinux wheel may take from the system.
LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
#: Tags that have a name instead of a version.
NAMED = {"manylinux2014": (2, 17)}


def text(data, at):
    return data[at : data.index(b"\0", at)].decode()


def needs(program):
    """Libraries, and the newest version of glibc's symbols, that an ELF program of 64 bits needs."""
    at, size, count = struct.unpack_from("<Q", program, 40)[0], *struct.unpack_from("<HH", program, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", program, at + i * size) for i in range(count)]
    libraries, newest = set(), (0, 0)
    for _, kind, _, _, start, length, link, info, _, _ in sections:
        strings = sections[link][4] if link < count else 0
        if kind == 6:  # dynamic
            entries = struct.iter_unpack("<qQ", program[start : start + length])
            libraries |= {text(program, strings + value) for tag, value in entries if tag == 1}
        if kind == 0x6FFFFFFE:  # needed versions, a list of lists
            file = start
            for _ in range(info):
                _, symbols, _, first, following = struct.unpack_from("<HHIII", program, file)
                one = file + first
                for _ in range(symbols):
                    _, _, _, name, after = struct.unpack_from("<IHHII", program, one)
                    version = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", text(program, strings + name))
                    if version:
                        newest = max(newest, (int(version[1]), int(version[2])))
                    one += after
                file += following
    return libraries, newest


def wheel():
    found = sorted(Path(__file__).parent.glob("qassay-*.whl"))
    if not found:
        pytest.skip("no wheel beside the tests; scripts/python_tests.sh puts it there")
    return found[-1]


def test_the_tag_is_the_glibc_that_the_program_needs():
    path = wheel()
    python, abi, platform = path.stem.split("-")[2:5]
    assert (python, abi) == ("py3", "none") and platform.endswith("_x86_64")
    with zipfile.ZipFile(path) as z:
        program = z.read(next(n for n in z.namelist() if n.endswith("/scripts/qassay")))
        said = z.read(next(n for n in z.namelist() if n.endswith(".dist-info/WHEEL"))).decode()
    libraries, newest = needs(program)
    assert libraries <= LIBRARIES, libraries - LIBRARIES
    for tag in platform.removesuffix("_x86_64").split("."):
        tag = tag.removesuffix("_x86_64")
        promised = NAMED.get(tag) or tuple(int(n) for n in re.fullmatch(r"manylinux_(\d+)_(\d+)", tag).groups())
        assert (2, 17) <= newest <= promised, f"the program needs glibc {newest}, the tag says {promised}"
    assert f"Tag: py3-none-{platform.split('.')[0]}" in said


def test_the_program_runs_on_red_hat_9():
    """Its glibc is 2.34."""
    with zipfile.ZipFile(wheel()) as z:
        newest = needs(z.read(next(n for n in z.namelist() if n.endswith("/scripts/qassay"))))[1]
    assert newest <= (2, 34)
