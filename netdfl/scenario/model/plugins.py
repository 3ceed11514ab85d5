"""The import of components that a user wrote from modules next to a scenario file.

The modules of each folder are imported into an artificial package, whose name in `sys.modules` belongs to this folder
only. So two scenarios may each have a `parts.py`, and a module may have the name of one in Python's library.

In a process that loads scenarios again and again, such as a notebook, modules of such a folder are imported anew once
one was edited. Modules that Python imported under their ordinary names belong to the user's program, too: they are not
imported anew, and an edited one is refused. Otherwise a run would execute other code than the code that it records.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from netdfl.core.whose import HOME, named
from netdfl.record.forms import read_form
from netdfl.scenario.model.own_modules import FileState, find_modules, python_path, state_of

ORIGIN = "origin.json"
_LOADED: dict[str, tuple[ModuleSpec | None, FileState | None]] = {}
"""Each module's specification, which a reload replaces, and the state of its file when it was imported, by name."""
_FOUND: dict[str, set[str]] = {}
"""The names of the modules that were found in a folder, by the name of its artificial package."""


class Origin(TypedDict):
    """The contents of `origin.json`: the folder of the scenario of a run, or of the study that made a scenario."""

    directory: str


_CAME: TypeAdapter[Origin] = TypeAdapter(Origin)


_FAILED: ContextVar[dict[tuple[str, str], BaseException] | None] = ContextVar("failed imports", default=None)


@contextmanager
def failing_once() -> Iterator[None]:
    """Within the `with` block, do not import a module again whose import failed, but raise the same error again."""
    token = _FAILED.set({})
    try:
        yield
    finally:
        _FAILED.reset(token)


def find_own(path: str, directory: str) -> object:
    """Import `package.module:name` from `directory`, the working directory, or the installed packages.

    Any exception of the import is raised unchanged.
    """
    module, _, attribute = path.partition(":")
    if module == "torchvision":  # a model by its name, built by torchvision's own function
        build: object = importlib.import_module("netdfl.training.models.catalog").from_torchvision(attribute)
        return build
    known = _FAILED.get()
    failed = {} if known is None else known
    if (module, directory) in failed:
        raise failed[module, directory]
    try:
        home = _module(module, directory)
    except (Exception, SystemExit) as error:
        failed[module, directory] = error
        raise
    named(home)
    found: object = home
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


def _module(name: str, directory: str) -> ModuleType:
    for folder in places(directory):
        if _is_in(folder, name):
            _forget_edited(_home(folder))
            return importlib.import_module(f"{_home(folder)}.{name}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    found = importlib.import_module(name)
    for each in find_modules([name], python_path()).files:
        if each in sys.modules and _is_stale(sys.modules[each]):
            raise ImportError(
                f"{each} was edited after Python imported it; start Python anew, or reload it by importlib"
            )
    return found


def _forget_edited(home: str) -> None:
    """Forget all modules of the package `home`, if one was edited, so that they are imported anew."""
    loaded = [name for name in _FOUND[home] if name in sys.modules]
    if any(_is_stale(sys.modules[name]) for name in loaded):
        for name in loaded:
            del sys.modules[name]


def _is_stale(module: ModuleType) -> bool:
    """Return whether a module's file was edited after the module was imported or, if unknown, first checked here."""
    state = _state_of(module)
    spec, was = _LOADED.setdefault(module.__name__, (module.__spec__, state))
    if spec is not module.__spec__:  # it was imported anew, or reloaded
        _LOADED[module.__name__] = module.__spec__, state
        return False
    return was != state


def _state_of(module: ModuleType) -> FileState | None:
    """Return the state of a module's file; None without one, as a folder of modules has none."""
    return state_of(Path(module.__file__)) if module.__file__ else None


def places(directory: str) -> Sequence[Path]:
    """Return the folders that may hold a user's modules: `directory`, its origins, and the current directory."""
    return (*origins(directory), Path.cwd())


def origins(directory: str) -> Sequence[Path]:
    """Return `directory` and the folders from which its scenario came, the nearest first.

    The origin of a run is the folder of the scenario that it ran; that of a study's scenario is the study's folder.
    """
    found = [Path(directory).resolve()]
    while (came := read_form(found[-1] / ORIGIN, _CAME)) is not None and Path(came["directory"]) not in found:
        found.append(Path(came["directory"]))
    return found


def origin_form(directory: Path) -> Origin:
    """Return the contents of `origin.json` for runs of a scenario in `directory`: the last folder of its `origins`.

    The folders before that one, such as the folder of a sweep's cells, may be moved later.
    """
    return {"directory": str(origins(str(directory))[-1])}


def files_beside(directory: str) -> list[Path]:
    """Return the modules and imported packages in `directory` and its origins, which a scenario's parts may import."""
    return [found for folder in origins(directory) for found in _files_in(folder)]


def _files_in(folder: Path) -> list[Path]:
    imported = {name.split(".")[1] for name in _FOUND[_home(folder)]}
    return sorted([*folder.glob("*.py"), *(path for name in imported if (path := folder / name).is_dir())])


def _is_in(folder: Path, name: str) -> bool:
    """Return whether the folder contains the module, and an ordinary import would not find it in this folder."""
    place = folder.joinpath(*name.split("."))
    if not place.with_name(f"{place.name}.py").is_file() and not (place / "__init__.py").is_file():
        return False
    return _found_anyway(name.partition(".")[0]) != folder


def _found_anyway(top: str) -> Path | None:
    """Return the folder in which an ordinary import finds the module `top`; None if there is none."""
    known = sys.modules.get(top)
    spec = PathFinder.find_spec(top) if known is None else known.__spec__
    files = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    return Path(files[0]).resolve().parent if files and files[0] else None


@cache
def _home(folder: Path) -> str:
    """Return the name of an artificial package for `folder`, so that imports search only this folder."""
    name = HOME + sha256(str(folder).encode()).hexdigest()[:12]
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    _FOUND[name] = set()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.invalidate_caches()
    return name


class _Finder(MetaPathFinder):
    """A finder of modules in the artificial packages that stand for folders, at any depth."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in its folder, with a loader that lets it import modules next to it."""
        if not fullname.startswith(HOME):
            return None
        importlib.invalidate_caches()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            _FOUND[fullname.partition(".")[0]].add(fullname)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """A loader of modules whose imports search their own folder first, at import time and later."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a user's module so that its imports first search its own folder."""
        home = module.__name__.partition(".")[0]
        _LOADED[module.__name__] = module.__spec__, _state_of(module)
        own = {**vars(builtins), "__import__": _importer(home)}
        module.__dict__["__builtins__"] = own
        super().exec_module(module)


def _importer(home: str) -> Callable[..., ModuleType]:
    folder = Path(sys.modules[home].__path__[0])

    def importing(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        names = (name, *(f"{name}.{each}" for each in fromlist or ()))
        if level or not any(_is_in(folder, each) for each in names):
            return builtins.__import__(name, globals, locals, fromlist, level)
        if fromlist:
            return builtins.__import__(f"{home}.{name}", globals, locals, fromlist, 0)
        importlib.import_module(f"{home}.{name}")
        return sys.modules[f"{home}.{name.partition('.')[0]}"]

    return importing
