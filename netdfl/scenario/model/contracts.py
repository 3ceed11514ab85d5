"""The contracts of components that a user writes: the arguments that netdfl passes, and the type of the result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, wraps
from pkgutil import resolve_name

from netdfl.core.errors import InputError, OwnPartError
from netdfl.core.whose import defined_at, named_error, own_place
from netdfl.scenario.model.fields import Function
from netdfl.scenario.model.signatures import plain_signature


@dataclass(frozen=True)
class Contract:
    """The contract of one kind of component (part) that a user may write: how it is called, and its result's type.

    `context` has the names of the positional-only arguments that netdfl passes; the parameters in the scenario are
    passed by keyword. `help` describes the context. With `bare`, a part may also take none of these arguments, as a
    plain class or factory does. `adapt`, as `module:name`, converts a result to the expected type, and raises TypeError
    that names the expected types for a result of an unknown one. `prepare`, as `module:name`, takes the user's function
    or class, and returns a function with the parameters that a scenario writes, where these differ from its own.
    """

    context: tuple[str, ...]
    returns: str
    help: str = ""
    bare: bool = False
    adapt: str = ""
    prepare: str = ""

    @property
    def result(self) -> str:
        """The name of the type that a component of this kind returns."""
        return self.returns.partition(":")[2].replace("|", " or ")

    def signature(self, name: str = "mine") -> str:
        """Return the first line of the definition of a user's component of this kind, called `name`."""
        given = f"{', '.join(self.context)}, /, " if self.context else ""
        return f"def {name}({given}*, ...) -> {self.result}"

    def types(self) -> tuple[type, ...]:
        """Import and return the types that a component of this kind may return."""
        module, _, names = self.returns.partition(":")
        return tuple(resolve_name(f"{module}:{name}") for name in names.split("|"))


_DRAWN = "how many nodes, the server included; the scenario's random streams"
_RATE = Contract((), "netdfl.links.rules.mahimahi:Shape|Opportunities")

CONTRACTS: Mapping[str, Contract] = {
    "algorithm": Contract(
        ("exchange",),
        "netdfl.algorithms.base:Algorithm",
        "the wait, the compressor, what is done about losses",
        prepare="netdfl.algorithms.exchange:flat",
    ),
    "topology": Contract(("num_nodes", "streams"), "netdfl.topology.base:Topology", _DRAWN),
    "weights": Contract(("graph",), "netdfl.topology.weights:MixingMatrix", "the graph of one round"),
    "selection": Contract(("num_nodes", "streams"), "netdfl.topology.selection:Selection", _DRAWN),
    "compression": Contract((), "netdfl.compression.base:Compressor"),
    "model": Contract(
        ("shape", "num_classes"), "torch.nn:Module", "the shape of one input; how many classes", bare=True
    ),
    "dataset": Contract(
        ("root",),
        "netdfl.training.data.own:Dataset|Datasets",
        "the folder where datasets are kept",
        bare=True,
        adapt="netdfl.training.data.own:adapted",
    ),
    "training loss": Contract(("outputs", "targets"), "torch:Tensor", "what the model gave; what the data hold"),
    "metric": Contract(
        ("outputs", "targets"),
        "builtins:float",
        "what the model gave for all; what the data hold",
        adapt="netdfl.training.tasks.task:as_number",
    ),
    "partition": Contract(
        ("labels", "num_clients", "streams"),
        "builtins:list",
        "the labels of all training samples, (N,); how many clients; the random streams",
    ),
    "augmentation": Contract(("x", "rng"), "torch:Tensor", "a batch (N, *shape); a NumPy generator"),
    "task": Contract(
        ("node", "streams"),
        "netdfl.training.tasks.task:Quadratic|Task",
        "nothing; or, for a toy problem, the client and the random streams",
        bare=True,
    ),
    "loss": Contract(("seed",), "netdfl.links.rules.loss:LossModel", "the seed of the link's luck"),
    "latency": Contract((), "netdfl.links.rules.latency:Delay"),
    "rate": _RATE,
    "uplink": _RATE,
    "downlink": _RATE,
    "duplicate": Contract((), "netdfl.links.rules.disorder:Duplication"),
    "corrupt": Contract((), "netdfl.links.rules.disorder:Corruption"),
    "reorder": Contract((), "netdfl.links.rules.disorder:Reordering"),
    "compute time": Contract(("streams",), "collections.abc:Callable", "the scenario's random streams"),
}
"""The contracts of the kinds of components that a user may write. Components of other kinds come only from netdfl."""


def check_signature(function: Function, contract: Contract) -> str:
    """Return an error text if `function` can't take the arguments that netdfl passes by `contract`; else empty."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "its signature is unknown"
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return ""
    only = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
    if len(only) == len(contract.context) or (contract.bare and not only):
        return ""
    given = ", ".join(contract.context) or "none"
    return f"it takes {', '.join(only) or 'no arguments'} before `/`, and netdfl gives {given}"


def is_bare(function: Function, contract: Contract) -> bool:
    """Return whether `function` takes none of the arguments that netdfl passes, where the contract permits that."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = {parameter.kind for parameter in parameters}
    positional = inspect.Parameter.POSITIONAL_ONLY in kinds
    starred = inspect.Parameter.VAR_POSITIONAL in kinds and not inspect.isclass(function)
    return contract.bare and not positional and not starred


@cache
def prepared(function: Function, what: str) -> Function:
    """Return a user's `function` with the additional parameters that a scenario can write for the kind `what`."""
    name = CONTRACTS[what].prepare
    return resolve_name(name)(function) if name else function


@cache
def guarded(function: Function, path: str, what: str) -> Function:
    """Wrap a user's `function` so that its exceptions, and results of a wrong type, raise OwnPartError.

    `path` is its name in the scenario, and `what` its kind, such as `loss`.
    """
    contract = CONTRACTS[what]
    bare = is_bare(function, contract)

    @wraps(function, updated=())
    def calling(*context: object, **params: object) -> object:
        try:
            result = function(**params) if bare else function(*context, **params)
        except InputError:
            raise
        except Exception as exc:
            raise broken(what, path, exc, function) from exc
        if contract.adapt:
            try:
                result = resolve_name(contract.adapt)(result)
            except TypeError as exc:
                did = f"returned {type(result).__name__}, expected {contract.result}"
                raise misfit(what, path, did, function, f"return {exc}") from exc
        if not any(_is(result, kind) for kind in contract.types()):
            raise misfit(what, path, f"returned {type(result).__name__}, expected {contract.result}", function)
        return result

    if bare:
        calling.__signature__ = plain_signature(function)  # type: ignore[attr-defined]
    if (complete := getattr(function, "complete", None)) is not None:
        calling.complete = complete  # type: ignore[attr-defined]
    return calling


def misfit(what: str, path: str, did: str, function: Function, remedy: str = "") -> OwnPartError:
    """Create an error for a user's component that behaved wrongly (`did`); the default remedy is its signature."""
    place = f" ({where})" if (where := defined_at(function)) else ""
    return OwnPartError(f"the {what} {path!r} {did}{place}", remedy or _remedy(what, path))


def broken(what: str, path: str, exc: Exception, function: Function, doing: str = "") -> OwnPartError:
    """Create an error for a user's component that raised `exc`, or whose result raised it while `doing` something."""
    inside, where = own_place(exc), defined_at(function)
    text = f"the {what} {path!r} raised {named_error(exc, doing)}"
    text += f" ({inside or where})" if inside or where else ""
    if inside:  # it was called rightly: what is wrong is in it, or in the parameters that it refuses
        return OwnPartError(text)
    home = CONTRACTS[what].returns.partition(":")[0]
    return OwnPartError(text, f"see {home}: {CONTRACTS[what].result}" if doing else _remedy(what, path))


def _remedy(what: str, path: str) -> str:
    return f"write it as {CONTRACTS[what].signature(path.rpartition(':')[2].rpartition('.')[2])}"


def _is(result: object, kind: type) -> bool:
    if not getattr(kind, "_is_protocol", False):
        return isinstance(result, kind)
    members = {*vars(kind), *vars(kind).get("__annotations__", {})}
    return all(hasattr(result, name) for name in members if not name.startswith("_"))
