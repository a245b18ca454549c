"""What is beside the package: the lists of packages, the Dockerfile, the example."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.conftest import REPOSITORY
from weir_advisor.config import load

FOLDER = REPOSITORY / "advisor/prophet"


def test_the_example_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = REPOSITORY / "examples/advisor/advisor.yaml"
    for name in re.findall(r"\$\{(\w+)\}", file.read_text()):
        monkeypatch.setenv(name, "s3cret")
    assert load(file).rules


def test_all_that_is_required_is_pinned_with_hashes() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    pinned = ""
    for file, required in (("requirements.lock", project["dependencies"]), ("requirements-test.lock", project["optional-dependencies"]["test"])):
        text = (FOLDER / file).read_text()
        assert "//" not in text, f"{file} names a host"
        pinned += text
        names = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==\S+.* \\\n    --hash=sha256:", pinned, re.MULTILINE)}
        assert len(names) == len(re.findall("^[a-zA-Z]", pinned, re.MULTILINE))
        for requirement in required:
            found = re.match(r"[\w-]+", requirement)
            assert found
            assert found[0].lower() in names, f"{requirement} is not in {file}: ./scripts/advisor lock"


def test_the_image_copies_files_that_exist_and_runs_without_rights() -> None:
    lines = [line.split() for line in (FOLDER / "Dockerfile").read_text().splitlines()]
    copied = [name for line in lines if line[:1] == ["COPY"] for name in line[1:-1]]
    assert copied
    for name in copied:
        assert (FOLDER / name).exists()
    assert [line[1] for line in lines if line[:1] == ["USER"]] == ["8787"]  # a number, which Kubernetes can check for runAsNonRoot
    assert any(re.fullmatch(r"python:3\.1[1-4]\.\d+-\S+", line[1]) for line in lines if line[:1] == ["FROM"])
