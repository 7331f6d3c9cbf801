"""How long a run may take: time is shared out among its parts, and a part does as many rounds as fit into its share."""

import time


class Budget:
    """Time from now on. A part that needs less leaves the rest to those after it, one that needs more takes it from them."""

    def __init__(self, seconds):
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self):
        """Seconds; None where there is no limit."""
        return None if self.end is None else self.end - time.monotonic()

    def shares(self, parts, weight=lambda part: 1):
        """Each part with the budget that falls to it by its weight, as its turn comes.

        Where nothing is left the budget is None: leave that part out. The first part always gets its turn.
        """
        parts = list(parts)
        for number, part in enumerate(parts):
            left = self.left()
            if left is None:
                yield part, Budget(None)
            elif number and left <= 0:
                yield part, None
            else:
                yield part, Budget(left * weight(part) / sum(weight(later) for later in parts[number:]))

    def rounds(self, most, kind=lambda number: None):
        """Numbers of rounds: one at least, `most` at most, and none that would end too late if it took as long as the
        longest of its kind before it."""
        longest = {}
        for number in range(most):
            begin, before = time.monotonic(), longest.get(kind(number), 0)
            if number and self.end is not None and begin + before > self.end:
                continue
            yield number
            longest[kind(number)] = max(before, time.monotonic() - begin)
