"""Addresses such as `s3://bucket/logs`: which kinds there are, and what they need."""

import logging
import re
from typing import Any

from rl_training.errors import ConfigError

NEEDED = {"s3": "s3fs", "gs": "gcsfs", "file": "fsspec", "memory": "fsspec"}
"""The library for each kind; others that fsspec knows (chains, archives, remote shells) are refused."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def is_remote(text: object) -> bool:
    """Return whether a text is an address rather than a path."""
    return isinstance(text, str) and _ADDRESS.match(text) is not None


def checked_address(text: str) -> str:
    """Return an address of a known kind without a slash at its end; anything else is refused by what is wrong with it."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text}: is not an address such as s3://bucket/run")
    kind, place = found[1], found[2].rstrip("/")
    if kind not in NEEDED:
        known = ", ".join(f"{one}://" for one in NEEDED)
        raise ConfigError(f"{text}: is of no known kind; there are {known}")
    if not place or "::" in text or not text.isprintable():
        raise ConfigError(f"{text!r}: does not say where in the store; write {kind}://BUCKET/FOLDER")
    return f"{kind}://{place}"


def refuse_address(text: object, what: str) -> None:
    """Refuse an address where only a local path can be."""
    if is_remote(text):
        raise ConfigError(f"{text}: {what} must be on a file system; give a local path, and copy it there yourself")


def open_filesystem(address: str) -> Any:
    """Return fsspec's file system for an address, or raise a ConfigError that names the extra to install."""
    kind = address.partition("://")[0]
    try:
        import fsspec

        own = {"auto_mkdir": True} if kind == "file" else {}
        if kind == "gs":
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs with a traceback what it also raises
        return fsspec.filesystem(kind, use_listings_cache=False, **own)
    except ImportError:
        raise ConfigError(f'{address}: needs {NEEDED[kind]}: pip install "rl-training[remote]"') from None
