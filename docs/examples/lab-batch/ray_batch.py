#!/usr/bin/env python3
"""Runs a batch of the lab in parts with Ray, and joins them.

    python3 ray_batch.py --shards 8 run shallow_25 --seeds 40
    python3 ray_batch.py --shards 2 --local run shallow_25 --seeds 8   # processes, without Ray
"""
import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor


def part(program, command, number, shards):
    """Runs one part, and returns its results as bytes: workers need not share a disk."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "part.jsonl")
        words = [program, "lab", *command, "--threads", "1"]
        words += ["--shard", f"{number}/{shards}", "--results", file]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        # A hunt exits with 1 when it has found something.
        allowed = (0, 1) if command[0] == "hunt" else (0,)
        if done.returncode not in allowed:
            raise RuntimeError(f"shard {number}/{shards}: {done.stderr.strip()}")
        with open(file, "rb") as results:
            return results.read()


def with_ray(program, command, shards):
    import ray

    ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=2)(part)
    return ray.get([remote.remote(program, command, n, shards) for n in range(1, shards + 1)])


def with_processes(program, command, shards):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(part, program, command, n, shards) for n in range(1, shards + 1)]
        return [job.result() for job in jobs]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--local", action="store_true", help="processes, without Ray")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run, sweep or hunt with its options")
    options = parser.parse_args()
    if not options.command or options.command[0] not in ("run", "sweep", "hunt"):
        parser.error("expected run, sweep or hunt, such as: run shallow_25 --seeds 40")
    program = os.environ.get("CLEARWAY", "clearway")
    work = with_processes if options.local else with_ray
    results = work(program, options.command, options.shards)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, content in enumerate(results, 1):
            files.append(os.path.join(folder, f"part{number}.jsonl"))
            with open(files[-1], "wb") as file:
                file.write(content)
        return subprocess.run([program, "lab", "merge", *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
