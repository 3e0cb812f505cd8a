"""Where Pavane keeps what it can make again: models, deployment forms, compiled programs and objects."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def user_cache(given: Path | str | None = None, part: str = "") -> Path:
    """The directory of a part of the cache: inside `given`, or else inside the user's own cache directory."""
    return Path(given if given is not None else platformdirs.user_cache_dir("pavane")) / part
