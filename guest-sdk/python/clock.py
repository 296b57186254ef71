"""The time and the chance of a run, which both come from its request. Importing it changes Python's own modules."""

import datetime
import os
import random
import time

nanos = 0
"""Since the Unix epoch."""


def start(uid, now_millis):
    global nanos
    nanos = now_millis * 1_000_000
    random.seed(f"{uid} {now_millis}")


def seconds():
    return nanos / 1e9


def sleep(_):
    raise RuntimeError('a run cannot wait: return {"after_seconds": n}')


def with_now(function):
    """Returns the function with the run's time as the default of its argument."""
    return lambda secs=None, /: function(seconds() if secs is None else secs)


def seed(self, a=None, version=2):
    whole(self, random.getrandbits(64) if a is None else a, version)


class Clocked(datetime.datetime):
    """The class datetime with the time of the run, because that in C asks the system."""

    __slots__ = ()

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(seconds(), tz)

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


whole = random.Random.seed
random.Random.seed = seed
random.seed = random._inst.seed
os.urandom = random._urandom = random.randbytes
Clocked.__name__ = Clocked.__qualname__ = "datetime"
Clocked.__module__ = "datetime"
datetime.datetime = Clocked
for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
    setattr(time, clock, seconds)
    setattr(time, f"{clock}_ns", lambda: nanos)
for function in ("gmtime", "localtime", "ctime"):
    setattr(time, function, with_now(getattr(time, function)))
time.asctime = lambda t=None, whole=time.asctime: whole(t or time.gmtime())
time.strftime = lambda form, t=None, whole=time.strftime: whole(form, t or time.gmtime())
time.sleep = sleep
for function in ("clock_gettime", "clock_gettime_ns", "clock_getres", "get_clock_info"):
    vars(time).pop(function, None)
