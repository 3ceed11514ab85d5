"""What a wheel holds beside the package: the scenarios and the recipe of the node's image, inside it."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("scenarios", "nodes/image")
"""What `netdfl.core.files.shipped` finds below `netdfl/shipped`, but in editable installs."""


class BuildWithShipped(build_py):
    """Builds the package as always, then copies what is shipped into it."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            for source, target in self._shipped().items():
                self.mkpath(os.path.dirname(target))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """All files that are built."""
        return [*super().get_outputs(include_bytecode), *self._shipped().values()]

    def _shipped(self) -> dict[str, str]:
        files = [path for folder in SHIPPED for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return {str(path): str(Path(self.build_lib, "netdfl", "shipped", path)) for path in files}


setup(cmdclass={"build_py": BuildWithShipped})
