#!/usr/bin/env python3
"""Diagnoses other stacks from what is on the wire: runs quinn and noq through the lab's networks,
records each run as a packet capture with its secrets, and compares what `clearway diagnose` says
with whether the run reached the scenario's bars. Prints Markdown.

    diseases.py CLEARWAY LAB_RIVALS [SCENARIO,...]

CLEARWAY is the command, LAB_RIVALS the program of `lab-rivals/`; captures are removed when read.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

# Detectors of the network's or the peer's part: true of a healthy stack, too.
CIRCUMSTANCES = {"pto_storm", "fc_deadlock", "spurious_storm", "rtt_step", "amplification_deadlock"}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def file_name(standing):
    name = f"{standing['entrant']}_{standing['scenario']}"
    if standing["variant"]:
        name += "_" + standing["variant"]
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name) + "_seed1.pcapng"


def diagnosed(clearway, capture):
    """The sender's trace, of several the first with a problem, and what could not be read."""
    report = run([clearway, "diagnose", "--json", str(capture)])
    sent = lambda trace: trace["totals"]["bytes_sent"] >= trace["totals"]["bytes_received"]
    senders = [trace for trace in report["traces"] if sent(trace)] or report["traces"]
    trace = next((trace for trace in senders if trace["problems"]), senders[0])
    return trace, [text for text in report["notes"] if "decrypted" in text or "secrets" in text]


def main():
    clearway, rivals = sys.argv[1:3]
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else []
    failed, passed, unread_files = [], [], []
    scenarios = names or [None]
    for scenario in scenarios:
        with tempfile.TemporaryDirectory() as folder:
            command = [rivals, "league", "--ci", "--seeds", "1", "--stacks", "quinn,noq", "--json"]
            command += ["--capture", folder]
            command += ["--scenarios", scenario] if scenario else []
            for standing in run(command)["standings"]:
                capture = pathlib.Path(folder) / file_name(standing)
                trace, unread = diagnosed(clearway, capture)
                unread_files += [(standing, text) for text in unread]
                (passed if standing["passed"] else failed).append((standing, trace))
        print(f"{scenario}: {len(failed)} failed, {len(passed)} passed", file=sys.stderr)

    print("| stack | network | missed | diagnosed from its packets |\n|---|---|---|---|")
    for standing, trace in failed:
        network = " ".join(filter(None, [standing["scenario"], standing["variant"]]))
        missed = "; ".join(f"{miss['bar'] or 'must not be'}: {miss['found']}" for miss in standing["misses"])
        print(f"| {standing['entrant']} | `{network}` | {missed} | {trace['headline']} |")
    alarms, said = [], collections.Counter()
    for standing, trace in passed:
        found = {problem["detector"] for problem in trace["problems"]}
        said.update(found)
        if found - CIRCUMSTANCES:
            alarms.append((standing, trace, found - CIRCUMSTANCES))
    print(f"\n{len(passed)} runs that reached their bars: {len(alarms)} with a finding against the stack.")
    print("Findings in them: " + (", ".join(f"{name} {count}" for name, count in said.most_common()) or "none") + ".\n")
    for standing, trace, found in alarms:
        print(f"- {standing['entrant']}, {standing['scenario']} {standing['variant']}: {', '.join(sorted(found))}: {trace['headline']}")
    print(f"\nCaptures of which packets could not be read: {len(unread_files)}.")


main()
