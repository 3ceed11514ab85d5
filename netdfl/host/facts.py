"""Facts about this machine and its network that matter for deploying a fleet.

A forked child of a fork server collects them, so that the server itself does not change. Questions and answers are
plain data.
"""

from __future__ import annotations

import fcntl
import importlib.util
import ipaddress
import os
import platform
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from typing import Any

from netdfl.core.process import cores
from netdfl.core.types import Json
from netdfl.core.versions import PACKAGES, source_hash, versions_here
from netdfl.host.measuring import MeasurementServer, measured

COMMANDS = ("ip", "tc", "docker", "docker-compose", "srun", "nvidia-smi")
_SIOCGIFADDR, _OF_A_LINK = 0x8915, "20"
Answer = dict[str, Any]


def answer(question: Json, say: Callable[[Answer], None]) -> None:
    """Answer a question about this machine, by passing the answer to `say`.

    A question with the key `serve` starts a server for network measurements, which runs until the process is killed.
    """
    if "serve" in question:
        with MeasurementServer(**question["serve"]) as served:
            say({"port": served.port, "pid": os.getpid()})
            served.serve_forever()
    elif "measure" in question:
        asked = question["measure"]
        targets = {name: (str(host), int(port)) for name, (host, port) in asked["targets"].items()}
        say({"measured": measured(asked["what"], targets, asked["token"])})
    elif "network" in question:
        has = {name: " and ".join(addresses) for name, addresses in interfaces().items()}
        say({"address": address_in(question["network"]), "has": has})
    elif "versions" in question:
        say({"versions": dict(versions_here(**question["versions"]))})
    elif "facts" in question:
        say({"facts": facts(question["facts"])})
    else:
        say({"unknown": sorted(question)})


def interfaces() -> dict[str, list[str]]:
    """Return the addresses of this machine by interface, IPv4 first, without link-local ones."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = [socket.inet_ntoa(told[20:24])]
    with suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as lines:
        for address, _, _, scope, _, name in map(str.split, lines):
            if scope != _OF_A_LINK:
                found.setdefault(name, []).append(str(ipaddress.IPv6Address(int(address, 16))))
    return found


def address_in(network: str) -> str:
    """Return this machine's address in `network`, an interface or a range like 10.0.0.0/8; empty if it has none."""
    has = interfaces()
    if network in has:
        return has[network][0]
    try:
        wanted = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return ""
    addresses = (address for own in has.values() for address in own)
    return next((address for address in addresses if ipaddress.ip_address(address) in wanted), "")


def facts(wanted: Json) -> dict[str, Any]:
    """Return facts about this machine, by name, such as its cores, GPUs, memory and versions of packages.

    `wanted` may hold a `listen` address to try, host `names` to resolve, `datasets` to look for, and `addresses`
    (`host:port`) of nodes. Each of these addresses that belongs to this machine is bound for a moment, to find ports
    that other processes use.
    """
    return {
        "host": socket.gethostname(),
        "time_s": time.time(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: _version(name) for name in PACKAGES},
        "source": source_hash(),
        "cores": cores(),
        "gpus": _gpus(),
        "memory_bytes": _memory(),
        "disk_free_bytes": shutil.disk_usage(tempfile.gettempdir()).free,
        "temporary": tempfile.gettempdir(),
        "open_files": _open_files(),
        "listens": _port_fault(str(wanted.get("listen", "127.0.0.1"))),
        "taken": {each: why for each in wanted.get("addresses", ()) if (why := _taken(each))},
        "names": {name: _address(name) for name in wanted.get("names", ())},
        "datasets": {name: _has_dataset(name) for name in wanted.get("datasets", ())},
        "root": hasattr(os, "geteuid") and os.geteuid() == 0,
        "tun": os.path.exists("/dev/net/tun"),
        "commands": {name: shutil.which(name) is not None for name in COMMANDS},
        "ray": importlib.util.find_spec("ray") is not None,
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _memory() -> int:
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _open_files() -> int:
    with suppress(ImportError):
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0


def _taken(where: str) -> str:
    """Return why a node can't listen at `where` (`host:port`); empty if it can, or if that is another machine."""
    host, _, port = where.rpartition(":")
    address = _address(host.strip("[]"))
    return _port_fault(address, int(port)) if address and not _port_fault(address) else ""


def port_fault(host: str, port: int) -> str:
    """Return the reason why no process of this machine can listen at `host` on `port`; empty if one can."""
    address = _address(host.strip("[]"))
    return _port_fault(address, port) if address else f"the name {host} has no address here"


def _port_fault(address: str, port: int = 0) -> str:
    """Return the reason why no process can listen at `address` on `port` (0: any); empty if one can."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended is in no way
            tried.bind((address, port))
            tried.listen()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _address(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return ""


def _has_dataset(name: str) -> bool:
    """Return whether the dataset is on this machine: installed in a package, or downloaded."""
    from netdfl.training.data.dataset import data_root
    from netdfl.training.data.fetch import RECIPES

    recipe = RECIPES.get(name)  # others are in packages, or are a part of the user's own
    return recipe is None or recipe.complete(data_root() / recipe.folder)


def _gpus() -> int:
    """Return the number of GPUs that PyTorch can use. Do not fork afterwards: a child could use none."""
    import torch

    return torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
