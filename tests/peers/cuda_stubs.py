"""Stand-ins for NVIDIA's libraries, so that PyTorch's wheel loads on a machine that has no GPU and need not hold them.

The wheels of PyPI are linked to a dozen CUDA libraries of 3 GB, none of which is called when everything is computed on the
CPU. `write_stubs(lib)` compiles, with the C compiler that gsplit's own build needs, a library of each missing name that
defines the symbols PyTorch's libraries ask for; every function returns 100, cudaErrorNoDevice.
"""

import re
import subprocess
import tempfile
from pathlib import Path

NVIDIA = re.compile(r"^(cu|nccl|nv|__cuda|Nvtx|CUPTI)", re.IGNORECASE)


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def missing_libraries(libraries):
    """Libraries that these depend on, and that are neither next to them nor where the system looks."""
    wanted = set()
    for library in libraries:
        wanted |= set(re.findall(r"\(NEEDED\).*\[(.+?)\]", readelf("-d", library)))
    system = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    here = {library.name for library in libraries}
    return sorted(name for name in wanted - here if f"\t{name} " not in system)


def undefined_symbols(libraries):
    """{symbol: version or None} of everything from NVIDIA that some library leaves undefined and none defines."""
    undefined, defined = {}, set()
    for library in libraries:
        for line in readelf("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) < 8 or fields[4] not in ("GLOBAL", "WEAK"):
                continue
            symbol, _, version = fields[7].partition("@")
            if fields[6] != "UND":
                defined.add(symbol)
            elif NVIDIA.match(symbol):
                undefined[symbol] = version.lstrip("@") or None
    return {symbol: version for symbol, version in undefined.items() if symbol not in defined}


def version_owners(libraries):
    """{version: name of the library that defines it}, as the libraries' version needs say."""
    owners = {}
    for library in libraries:
        owner = None
        for file, version in re.findall(r"File: (\S+)|Name: (\S+)", readelf("-V", library)):
            owner = file or owner
            if version and owner:
                owners[version] = owner
    return owners


def write_stubs(folder):
    """Fills `folder`, the `lib` of an installed torch, until nothing is missing. Returns the names of the stubs."""
    libraries = sorted(folder.glob("*.so*"))
    names = missing_libraries(libraries)
    if not names:
        return []
    symbols = undefined_symbols(libraries)
    owners = version_owners(libraries)
    for name in names:
        own = {}
        for symbol, version in symbols.items():
            # Nothing says which library an unversioned symbol is from: every one may serve it.
            if version is None or owners.get(version) == name:
                own.setdefault(version, []).append(symbol)
        compile_stub(folder / name, name, own)
    return names


def compile_stub(path, name, symbols):
    """`symbols`: {version or None: [symbol]}."""
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        every = sorted(symbol for group in symbols.values() for symbol in group)
        source.write_text("".join(f"long {symbol}(void) {{ return 100; }}\n" for symbol in every))
        versioned = {version: group for version, group in symbols.items() if version}
        script.write_text("".join(f"{v} {{ global: {'; '.join(group)}; }};\n" for v, group in versioned.items()))
        options = [f"-Wl,--version-script={script}"] if versioned else []
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", *options, "-o", path, source]
        subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
