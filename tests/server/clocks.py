"""Programs whose clock is wrong: the C library's functions that tell the time of day, replaced.

Clocks that only count, by which leases end and timers run, are as they are everywhere.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

HOUR: Final = 3600

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong(void) {
    const char *seconds = getenv("CLOCK_IS_WRONG_BY");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += wrong();
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (place) *place = found.tv_sec;
    return found.tv_sec;
}
"""


def wrong_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Returns the environment of programs whose clock is ahead by so many seconds."""
    library = folder / "clock.so"
    if not library.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler, with which clocks are set wrong")
        (folder / "clock.c").write_text(_SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "clock.c"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_IS_WRONG_BY": str(seconds)}
