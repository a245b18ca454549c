"""What the advisor publishes, and what the vectors have, against the schema of docs/advice.openapi.yaml."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.conftest import REPOSITORY, Played, ask, configured, seasonal
from weir_advisor.advisor import Advisor
from weir_advisor.demand import Keys, above
from weir_advisor.service import Service

CHECKER = jsonschema.FormatChecker(())


@CHECKER.checks("date-time", ValueError)
def is_time(text: object) -> bool:
    return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None


def validator(name: str = "Document") -> jsonschema.Draft202012Validator:
    contract = yaml.safe_load((REPOSITORY / "docs/advice.openapi.yaml").read_text())
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **contract}, format_checker=CHECKER)


VALIDATOR = validator()


def test_health_and_problems_are_as_the_contract_has_them(tmp_path: Path) -> None:
    source = Played(lambda _: math.nan)
    service = Service(configured(tmp_path), source)
    for down in (None, False, True):
        if down is not None:
            source.down = down
            service.turn()
        validator("Health").validate(ask(service, "/healthz").json())
    for headers, fleet in (({"Weir-Config": "sha256:00"}, ""), ({}, "other")):
        validator("Problem").validate(ask(service, f"/v1/advice?fleet={fleet}", headers).json())


def test_what_is_advised_is_as_the_contract_has_it(model: str) -> None:
    advisor = Advisor(configured(model=model), Played(seasonal), keeps=False)
    published, outcomes = advisor.turn(1_700_006_400)
    document = json.loads(published.body)
    assert outcomes[0].advised
    assert published.body == json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    VALIDATOR.validate(document)
    assert document["model"]["name"] == model
    document["rules"][0] = {"rule": "api", "reason": "abuse", "above": above(Keys(usual_tail=20, usual_most=4))}
    VALIDATOR.validate(document)
    document["rules"][0]["above"]["limit"] = "0/10s"
    assert not VALIDATOR.is_valid(document)


def test_the_schema_takes_and_refuses_what_the_vectors_do() -> None:
    vectors = json.loads((REPOSITORY / "testdata/advice/documents.json").read_text())
    played = 0
    for case in vectors["cases"]:
        if case.get("lax") or "insert_hex" in case or case["reason"] in ("too_large", "time", "config", "rule", "serial"):
            continue
        text: str = vectors["document"]
        for old, new in case["edits"]:
            text = text.replace(old, new, 1)
        rules = ({"rule": f"r{i + 1}", "limit": {"requests": 6}, "reason": "growth"} for i in range(case.get("rules", 0)))
        text = text.replace("RULES", ",".join(json.dumps(rule) for rule in rules))
        assert takes(text) == (case["reason"] == ""), case["title"]
        played += 1
    assert played > 50


def takes(text: str) -> bool:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("duplicate")
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=once, parse_constant=lambda name: once([(name, 0), (name, 0)]))
    except ValueError:
        return False
    return VALIDATOR.is_valid(document)
