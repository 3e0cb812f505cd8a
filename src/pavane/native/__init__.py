"""Run an accepted program on this machine's cores: one thread a worker and site, everything else compiled.

Sees the program and nothing beside it: no model, no meaning of a name, no pass, no cost. See `load`.
"""

from pavane.native.runtime import NativeProgram, load

__all__ = ["NativeProgram", "load"]
