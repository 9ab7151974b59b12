"""Virtual environments with one library each: a part of `peers.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from importlib.metadata import Distribution, distributions
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"
#: Environment -> what pip is told to install, beside torch.
ENVIRONMENTS = {
    "torch": "",
    "transformers": "transformers[torch]==5.23.0",
    "trl": "trl==1.16.0",
    # without scikit-learn, here as its own extra asks for it, most of it cannot be imported
    "torch-uncertainty": "torch-uncertainty[cpu]==0.13.0 scikit-learn!=1.6.0,<1.7",
    "lm-polygraph": "lm-polygraph==0.7.0",
    "uqlm": "uqlm==0.6.7 httpx>=0.27",  # else pip tries httpx of 2020, which cannot be built
    "probly": "probly==0.3.0",  # the newest for Python 3.11
    "clue-hf": "clue-hf",
}


class Environments:
    """Virtual environments in a folder, those named made where they are missing."""

    def __init__(self, folder: Path, names: Collection[str] = ENVIRONMENTS) -> None:
        self.folder = folder.resolve()
        self.names = [name for name in ENVIRONMENTS if name in names]
        for name in ["torch", *self.names]:  # the others start as copies of that one
            if not (self.folder / name / "complete").exists():
                print(f"installing {name} ...", file=sys.stderr, flush=True)
                self._make(name)
        if "clue-hf" in self.names:
            self._install_ours()  # as the code is now

    def python(self, name: str) -> str:
        return str(self.folder / name / "bin" / "python")

    def site_packages(self, name: str) -> Path:
        return next((self.folder / name / "lib").glob("python*/site-packages"))

    def distributions(self, name: str) -> dict[str, Distribution]:
        return {found.name.lower(): found for found in distributions(path=[str(self.site_packages(name))])}

    def run(self, name: str, program: str) -> str:
        """The last line that a Python program prints."""
        done = self._run(name, program)
        if done.returncode:
            raise RuntimeError(f"{program}\n{done.stderr[-3000:]}")
        return done.stdout.strip().splitlines()[-1]

    def preparation(self, name: str) -> str:
        """What a program must begin with, where torchvision does not fit torch."""
        if name != "torch-uncertainty" or self._run(name, "import torchvision").returncode == 0:
            return ""
        return f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import missing_operators; "

    def _run(self, name: str, program: str) -> subprocess.CompletedProcess[str]:
        command = [self.python(name), "-W", "ignore", "-c", program]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def _make(self, name: str) -> None:
        # without pip: nothing is there but what is installed
        make = [sys.executable, "-m", "venv", "--without-pip", "--clear", str(self.folder / name)]
        subprocess.run(make, check=True)
        if name == "torch":
            self._pip(name, TORCH)
        else:  # a copy is the same files, sooner
            shutil.copytree(self.site_packages("torch"), self.site_packages(name), dirs_exist_ok=True)
            if name != "clue-hf":  # that comes every time
                self._pip(name, TORCH, *ENVIRONMENTS[name].split())
        (self.folder / name / "complete").touch()

    def _install_ours(self) -> None:
        """From a copy of the sources: a build leaves files behind."""
        with tempfile.TemporaryDirectory() as copied:
            for file in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy(ROOT / file, copied)
            shutil.copytree(ROOT / "clue_hf", Path(copied) / "clue_hf", ignore=shutil.ignore_patterns("__pycache__"))
            self._pip("clue-hf", TORCH, copied)

    def _pip(self, name: str, *words: str) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", self.python(name)]
        done = subprocess.run([*pip, "install", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pip could not install {' '.join(words)}:\n{done.stderr[-3000:]}")
