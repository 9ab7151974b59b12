"""Processes that are asked to end, and processes that are killed."""

import time


#: How often a training is killed at random: one of texts, and for want of time one of images and one of numbers.
KILLS, KILLS_OF_OTHER_KINDS = 20, 5


def send_until_it_ends(process, number, seconds=60):
    """Sends a signal every 10 ms until the process has ended: all but the first are harmless."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        process.send_signal(number)
        time.sleep(0.01)


def kill_at_random(process, generator):
    """Kills a worker some time after one of its first steps; the number of its first step."""
    said = []
    for _ in range(int(generator.integers(1, 4))):
        said.append(process.stdout.readline())
        assert said[-1].startswith("step"), process.communicate()[1][-2000:]
    time.sleep(generator.uniform(0, 0.08))
    process.kill()
    process.communicate()
    return int(said[0].split()[1])
