#!/usr/bin/env python3
"""Diagnoses other stacks from the qlog that they write: downloads a file from quic-go, picoquic and
aioquic, each from its own client and in real time, through `clearway relay`, and compares what
`clearway diagnose` says of the server's trace with what the network allowed. Prints Markdown.

    live_diseases.py CLEARWAY PROGRAMS [STACK,... [NETWORK,...]]

CLEARWAY is the command; PROGRAMS the folder with endpoint-quic-go and the others, which the
`build.sh` and `setup.sh` beside them make. Openssl makes the certificate.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STACKS = ["quic-go", "picoquic", "aioquic"]
# True of a healthy stack, too: the network's or the peer's part.
CIRCUMSTANCES = {"pto_storm", "fc_deadlock", "spurious_storm", "rtt_step", "amplification_deadlock"}
# The time that one download may take.
PATIENCE = 40
# A download that reaches this part of what the network allows is healthy.
HEALTHY = 0.5


class Network:
    """Options of the relay, and what a download should take there at least."""

    def __init__(self, options, megabytes, rate, delay, outage=0.0, handshake=3):
        self.options, self.megabytes = options, megabytes
        # Handshake, request and slow start cost round trips; the rate, in Mbit/s, the rest.
        self.least = megabytes * 8 / rate + outage + handshake * 2 * delay / 1000


def plain(rate, delay, queue, megabytes, more=()):
    options = ["--rate", f"{rate}M", "--delay", f"{delay}ms", "--queue", str(queue), *more]
    return Network(options, megabytes, rate, delay, handshake=8)


def networks():
    """Healthy ones first: what is slow there is slow by the stack's own fault."""
    found = {}
    for rate, megabytes in ((4, 1), (10, 3), (20, 5)):
        for delay in (5, 20, 50):
            for queue in (60, 250):
                found[f"{rate}M {delay}ms queue {queue}"] = plain(rate, delay, queue, megabytes)
    found["10M loss 0.1%"] = plain(10, 20, 100, 3, ["--loss", "0.1%"])
    found["10M jitter 2ms"] = plain(10, 20, 100, 3, ["--jitter", "2ms"])
    # Those in which stacks of the league fail.
    found["death spiral"] = Network(
        ["--rate", "100M", "--delay", "5ms", "--queue", "250", "--loss-down", "30%@0s-2s"], 8, 100, 5, 2.0)
    found["blackhole"] = Network(
        ["--rate", "10M", "--delay", "20ms", "--blackhole", "500ms-3s"], 3, 10, 20, 2.5 * 2)
    found["loss 3%"] = plain(10, 20, 100, 3, ["--loss", "3%"])
    found["shallow queue"] = plain(20, 25, 8, 5)
    found["reordering"] = plain(20, 20, 200, 5, ["--reorder", "5%:20ms"])
    found["thinned ACKs"] = plain(20, 20, 200, 5, ["--up", "thin=10"])
    found["slots"] = plain(20, 20, 200, 5, ["--up", "slot=25ms"])
    found["rate falls"] = Network(
        ["--rate-down", "20M,2M@1s", "--delay", "20ms", "--queue", "100"], 3, 2, 20, 0.5)
    found["freezes"] = plain(20, 20, 200, 5, ["--freeze", "1s-1.3s,2s-2.3s"])
    found["policer"] = plain(5, 20, 500, 2, ["--police", "5M:30KB"])
    return found


class Program:
    """A process that ends with the download."""

    def __init__(self, command, log, **variables):
        environment = {**os.environ, **variables}
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def download(clearway, program, network, folder, port):
    """Downloads once; returns seconds, or None without success, and the server's trace."""
    www, qlog, got = (folder / name for name in ("www", "qlog", "got"))
    for path in (www, qlog, got):
        path.mkdir()
    (www / "file").write_bytes(os.urandom(1000) * (network.megabytes * 1000))
    common = {"TESTCASE": "transfer", "WWW": str(www), "CERTS": str(folder.parent), "DOWNLOADS": str(got), "SSLKEYLOGFILE": ""}
    relay = [clearway, "relay", "--listen", f"127.0.0.1:{port + 1}", "--to", f"127.0.0.1:{port}", *network.options]
    with open(folder / "log", "wb") as log:
        with Program([program], log, ROLE="server", PORT=str(port), QLOGDIR=str(qlog), **common):
            with Program(relay, log):
                time.sleep(0.7)
                begun = time.monotonic()
                url = f"https://127.0.0.1:{port + 1}/file"
                try:
                    done = subprocess.run([program], env={**os.environ, "ROLE": "client", "REQUESTS": url, "QLOGDIR": "", **common},
                                          stdout=log, stderr=log, timeout=PATIENCE)
                    complete = done.returncode == 0 and (got / "file").stat().st_size == network.megabytes * 1_000_000
                except (subprocess.TimeoutExpired, OSError):
                    complete = False
                took = time.monotonic() - begun
                # For the server to see the end of the connection, and to write it.
                time.sleep(0.5)
    traces = sorted((path for path in qlog.iterdir() if "qlog" in path.name), key=lambda path: path.stat().st_size)
    return (took if complete else None), (traces[-1] if traces else None)


def diagnosed(clearway, trace):
    """The trace of the sender, or why there is none."""
    done = subprocess.run([clearway, "diagnose", "--json", str(trace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not done.stdout:
        return {"headline": "unreadable: " + done.stderr.decode(errors="replace").strip()[:200], "problems": []}
    return max(json.loads(done.stdout)["traces"], key=lambda each: each["totals"]["bytes_sent"])


def main():
    clearway, programs = sys.argv[1:3]
    stacks = sys.argv[3].split(",") if len(sys.argv) > 3 else STACKS
    names = sys.argv[4].split(",") if len(sys.argv) > 4 else list(networks())
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", scratch / "priv.key", "-out", scratch / "cert.pem"], check=True, stderr=subprocess.DEVNULL)
        for stack in stacks:
            program = str(pathlib.Path(programs) / f"endpoint-{stack}")
            # Several of these programs can run at once, each for its own stacks.
            port = 46_000 + 400 * (STACKS.index(stack) if stack in STACKS else len(STACKS))
            for name in names:
                network, port = networks()[name], port + 2
                folder = scratch / str(port)
                folder.mkdir()
                took, trace = download(clearway, program, network, folder, port)
                said = diagnosed(clearway, trace) if trace else {"headline": "no trace", "problems": []}
                rows.append((stack, name, network, took, said))
                part = network.least / took if took else 0.0
                print(f"{stack}, {name}: {part:.2f} of the network, {said['headline']}", file=sys.stderr)
                if os.environ.get("KEEP") and trace:
                    trace.rename(pathlib.Path(os.environ["KEEP"]) / f"{stack}_{name.replace(' ', '_')}{''.join(trace.suffixes)}")
    report(rows)


def report(rows):
    healthy = lambda row: row[3] is not None and row[2].least / row[3] >= HEALTHY
    print("| stack | network | time, and least | diagnosed from its qlog |\n|---|---|---|---|")
    for stack, name, network, took, said in rows:
        if not healthy((stack, name, network, took, said)):
            taken = f"{took:.1f} s" if took else f"more than {PATIENCE} s"
            print(f"| {stack} | {name} | {taken}, {network.least:.1f} s | {said['headline']} |")
    well = [row for row in rows if healthy(row)]
    found, alarms = collections.Counter(), []
    for row in well:
        problems = {problem["detector"] for problem in row[4]["problems"]}
        found.update(problems)
        if problems - CIRCUMSTANCES:
            alarms.append((row, problems - CIRCUMSTANCES))
    by_stack = collections.Counter(row[0] for row in well)
    print(f"\n{len(well)} downloads at {HEALTHY:.0%} of the network or more ({', '.join(f'{s} {n}' for s, n in by_stack.items())}): "
          f"{len(alarms)} with a finding against the stack.")
    print("Findings in them: " + (", ".join(f"{name} {count}" for name, count in found.most_common()) or "none") + ".\n")
    for (stack, name, _, _, said), problems in alarms:
        print(f"- {stack}, {name}: {', '.join(sorted(problems))}: {said['headline']}")


main()
