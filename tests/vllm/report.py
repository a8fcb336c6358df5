"""What a check claims, and the line that says whether it held."""

import sys
import time
import traceback


class Claim(Exception):
    """Something was not as it should be."""


def expect(held, otherwise):
    if not held:
        raise Claim(otherwise)


def same(found, wanted, what):
    if found != wanted:
        raise Claim(f"{what}: {_short(found)} instead of {_short(wanted)}")


def _short(value, most=600):
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


class Report:
    """One line per check; the exit status."""

    def __init__(self):
        self.failed = 0
        self.passed = 0
        self.skipped = 0

    def check(self, name, body, *given):
        """Runs a check: it returns its figures, or raises what is wrong."""
        started = time.monotonic()
        try:
            figures = body(*given)
        except Claim as claim:
            self.failed += 1
            line = f"FAIL  {name}: {claim}"
        except Exception as error:
            self.failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            line = (
                f"FAIL  {name}: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            )
        else:
            self.passed += 1
            line = f"ok    {name} ({time.monotonic() - started:.1f} s): {figures}"
        print(line, flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skip  {name}: {why}", flush=True)

    def note(self, text):
        print(f"      {text}", file=sys.stderr, flush=True)
