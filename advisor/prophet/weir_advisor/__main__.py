"""python -m weir_advisor --config advisor.yaml: the service, or with --from and --to what it would have advised."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from weir_advisor.config import Config, ConfigError, load


def dry_run(config: Config, begin: datetime, end: datetime, to: str) -> None:
    """Writes what each turn from begin to end would have advised with what it then knew: a line of JSON for each, into a file or to
    standard output (-). Nothing is kept. Raises OSError, SourceError or ValueError."""
    from weir_advisor.advice import rfc3339
    from weir_advisor.advisor import Advisor
    from weir_advisor.prometheus import Prometheus

    with ExitStack() as ends:
        source = Prometheus(config)
        ends.callback(source.close)
        out = sys.stdout if to == "-" else ends.enter_context(open(to, "w", encoding="utf-8"))
        advisor = Advisor(config, source, keeps=False)
        now, interval = begin.timestamp(), config.interval.total_seconds()
        while now <= end.timestamp():
            published, outcomes = advisor.turn(now)
            line = {"at": rfc3339(now), "document": json.loads(published.body), "outcomes": [asdict(found) for found in outcomes]}
            print(json.dumps(line), file=out, flush=True)
            now += interval


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def main() -> int:
    """Runs the command. Returns its exit status: 2 if advisor.yaml is wrong, 1 if it cannot work with what it names."""
    parser = argparse.ArgumentParser("weir_advisor", description="Advises limits to Weir by forecasts of Prophet or ETS.")
    parser.add_argument("--config", type=Path, default=Path("advisor.yaml"), help="the configuration (advisor.yaml)")
    parser.add_argument("--from", dest="begin", type=_time, metavar="TIME", help="dry run: first turn, such as 2026-11-01T00:00:00Z")
    parser.add_argument("--to", dest="end", type=_time, metavar="TIME", help="dry run: last turn")
    parser.add_argument("--json", default="-", metavar="FILE", help="dry run: where to write to (-: standard output)")
    options = parser.parse_args()
    if (options.begin is None) != (options.end is None):
        parser.error("--from and --to: write both")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        config = load(options.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    from weir_advisor.prometheus import SourceError
    from weir_advisor.service import serve

    try:
        if options.begin:
            dry_run(config, options.begin, options.end, options.json)
        else:
            serve(config)
    except (OSError, ValueError, SourceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
