"""The progress of the offline harness, for people who wait for a benchmark."""

import sys
import time


class Progress:
    """One line on stderr that is rewritten; silent when stderr is not a terminal, except for a line a stage."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.start, self.shown = what, total, time.monotonic(), 0.0
        self.terminal = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        last = done >= self.total
        if last or now - self.shown > (0.2 if self.terminal else 20):
            self.shown = now
            end = "\n" if last or not self.terminal else ""
            begin = "\r" if self.terminal else ""
            print(
                f"{begin}{self.what}: {done}/{self.total}, {now - self.start:.0f} s",
                end=end,
                file=sys.stderr,
                flush=True,
            )


class Lines:
    """A `Progress` of agents/planning/spool.py: one such line for each stage."""

    def __init__(self) -> None:
        self.stage = Progress("", 0)

    def __call__(self, what: str, done: int, total: int) -> None:
        if self.stage.what != what or done <= self.done:
            self.stage = Progress(what, total)
        self.done = done
        self.stage(done)
