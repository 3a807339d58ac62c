"""Lists the modules and public names of an installed MLServer 1.7.1 in `names.json`.

    python list_names.py > names.json   # with the interpreter of the original

A name is public in the module that defines it, and in a package that exports it.
"""

import importlib
import inspect
import json
import pkgutil
from typing import Any, Dict, List

#: Names that modules import from the standard library, and constants of generated code.
_IGNORED = {"annotations", "TYPE_CHECKING", "logger", "random", "GRPC_GENERATED_VERSION", "GRPC_VERSION"}


def public_names(module: Any) -> List[str]:
    names = []
    for name, value in vars(module).items():
        if name.startswith(("_", "RootModel[")) or name in _IGNORED or inspect.ismodule(value):
            continue
        origin = getattr(value, "__module__", None)
        is_package = hasattr(module, "__path__")
        if origin in (None, module.__name__) or (is_package and origin.startswith("mlserver")):
            names.append(name)
    return sorted(names)


def main() -> None:
    found: Dict[str, List[str]] = {}
    for top in ("mlserver", "mlserver_sklearn"):
        package = importlib.import_module(top)
        modules = [top, *(module.name for module in pkgutil.walk_packages(package.__path__, f"{top}."))]
        for name in modules:
            found[name] = public_names(importlib.import_module(name))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
