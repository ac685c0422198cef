"""Maps the four top-level folders into the package; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

# `tasks/`, `models/`, ... are imported as `medimg_eval.tasks`, ... The links inside `medimg_eval/`
# serve an uninstalled checkout; a wheel is built from the real folders, so that a checkout without
# symbolic links builds the same wheel.
JOINED = ("tasks", "models", "metrics", "configs")

own = find_packages(include=["medimg_eval", "medimg_eval.*"])
packages = [p for p in own if not p.startswith(tuple(f"medimg_eval.{name}" for name in JOINED))]
for name in JOINED:
    packages += [f"medimg_eval.{name}", *(f"medimg_eval.{name}.{p}" for p in find_packages(name))]

setup(packages=packages, package_dir={f"medimg_eval.{name}": name for name in JOINED})
