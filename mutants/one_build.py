#!/usr/bin/env python3
"""Mutation testing with one build: a seeded sample of cargo-mutants' list in one test binary.

    mutants/run clearway-quic --sample 300 --seed 1

cargo-mutants builds and tests once per mutant, which takes days for a crate of this size. Here
every sampled mutant is compiled into one copy of the crate, each behind a check of the
environment variable CLEARWAY_MUTANT. Each test then runs once to find out which mutants it
reaches, and each mutant is run by the tests that reach it, cheapest first, until one fails:
first the unit tests, then, if it lives, those of the integration binary.

A mutant is *caught* if a test fails, *timeout* if a test needs far more processor time than
without it (also caught), *missed* if all pass, *unreached* if no test comes by (also missed),
and *not compiled* if it has no form that compiles here (constants, type errors); another one is
drawn in its place.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import tree_sitter_rust
from tree_sitter import Language, Parser

RUST = Language(tree_sitter_rust.language())
ROOT = pathlib.Path(__file__).resolve().parent.parent

# Goes into the crate under test.
SWITCH = """
/// Whether this mutant is switched on; says that it was reached where that is asked.
#[doc(hidden)]
#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction)]
pub fn mutant(id: u32) -> bool {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static ON: LazyLock<u32> = LazyLock::new(|| {
        std::env::var("CLEARWAY_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
    });
    static REACHED: LazyLock<Option<std::ffi::OsString>> =
        LazyLock::new(|| std::env::var_os("CLEARWAY_MUTANTS_REACHED"));
    static SEEN: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];
    if let Some(path) = &*REACHED
        && !SEEN[id as usize].swap(true, Ordering::Relaxed)
    {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{id}").unwrap();
    }
    *ON == id
}
"""


class File:
    """A source and the mutants to put into it."""

    def __init__(self, path):
        self.path = path
        self.source = path.read_bytes()
        self.tree = Parser(RUST).parse(self.source)
        starts = [0]
        for line in self.source.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self.starts = starts
        # Insertions by place, and replacements of whole expressions by node.
        self.insertions = collections.defaultdict(list)
        self.choices = collections.defaultdict(list)

    def offset(self, place):
        line = self.starts[place["line"] - 1]
        text = self.source[line:self.starts[place["line"]]].decode()
        return line + len(text[:place["column"] - 1].encode())

    def text(self, start, end):
        return self.source[start:end].decode()

    def node_at(self, start, end):
        return self.tree.root_node.descendant_for_byte_range(start, end)

    def in_const(self, node):
        while node is not None:
            if node.type in ("const_item", "static_item", "const_block"):
                return True
            if node.type == "function_item":
                head = self.text(node.start_byte, node.child_by_field_name("body").start_byte)
                return bool(re.search(r"\bconst\b[^(]*\bfn\b", head))
            node = node.parent
        return False

    def add(self, number, mutant):
        """Whether the mutant has a form here."""
        start, end = self.offset(mutant["span"]["start"]), self.offset(mutant["span"]["end"])
        genre, replacement = mutant["genre"], mutant["replacement"]
        on = f"crate::mutant({number})"
        node = self.node_at(start, max(start, end - 1))
        if node is None or self.in_const(node):
            return False
        if genre == "FnValue":
            while node is not None and node.type != "function_item":
                node = node.parent
            if node is None:
                return False
            body = node.child_by_field_name("body")
            returned = node.child_by_field_name("return_type")
            if returned is not None and self.text(returned.start_byte, returned.end_byte) \
                    .startswith("impl "):
                return False  # two types cannot stand behind one `impl Trait`
            value = f"if {on} {{ return {replacement}; }} "
            self.insertions[body.start_byte + 1].append(value)
            return True
        if genre in ("BinaryOperator", "UnaryOperator"):
            wanted = {
                "BinaryOperator": ("binary_expression", "compound_assignment_expr"),
                "UnaryOperator": ("unary_expression",),
            }[genre]
            node = self.node_at(start, end)
            while node is not None and node.type not in wanted:
                node = node.parent
            if node is None:
                return False
            if genre == "UnaryOperator":
                if node.start_byte != start:
                    return False
                wrong = self.text(end, node.end_byte)
            else:
                left = node.child_by_field_name("left")
                right = node.child_by_field_name("right")
                if not (left.end_byte <= start and end <= right.start_byte):
                    return False
                wrong = (self.text(left.start_byte, left.end_byte) + f" {replacement} "
                         + self.text(right.start_byte, right.end_byte))
            self.choices[(node.start_byte, node.end_byte)].append((on, wrong))
            return True
        if genre == "MatchArmGuard":
            guard = self.text(start, end)
            if re.search(r"\blet\b", guard):
                return False
            self.choices[(start, end)].append((on, replacement))
            return True
        if genre == "MatchArm":
            while node is not None and node.type != "match_arm":
                node = node.parent
            if node is None or node.start_byte != start:
                return False
            pattern = node.child_by_field_name("pattern")
            guard = pattern.child_by_field_name("condition")
            if guard is None:
                self.insertions[pattern.end_byte].append(f" if !{on}")
            else:
                self.insertions[guard.start_byte].append(f"!{on} && ")
            return True
        return False

    def render(self, start, end, skip=None):
        """The source between two places, with everything that is to go into it."""
        out, at = [], start
        points = sorted(
            [(s, -e, "choice") for (s, e) in self.choices
             if start <= s and e <= end and (s, e) != skip]
            + [(p, 0, "insert") for p in self.insertions if start <= p <= end]
        )
        for place, minus_end, what in points:
            if place < at:
                continue  # inside an expression that was rendered as a whole
            out.append(self.text(at, place))
            at = place
            if what == "insert":
                out.extend(self.insertions[place])
            else:
                stop = -minus_end
                text = "".join(f"if {on} {{ {wrong} }} else " for on, wrong in
                               self.choices[(place, stop)])
                inner = self.render(place, stop, skip=(place, stop))
                out.append(f"({text}{{ {inner} }})")
                at = stop
        out.append(self.text(at, end))
        return "".join(out)

    def write(self):
        self.path.write_text(self.render(0, len(self.source)))


def listed(package):
    out = subprocess.run(
        ["cargo", "mutants", "--list", "--json", "--no-config", "-p", package],
        cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(json.loads(out.stdout), key=lambda mutant: mutant["name"])


def build(copy, package, target):
    """The test binaries, or the lines that do not compile."""
    command = ["cargo", "test", "-p", package, "--lib", "--tests", "--no-run",
               "--message-format=json"]
    env = dict(os.environ, CARGO_TARGET_DIR=str(target), CARGO_PROFILE_DEV_DEBUG="0")
    out = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    binaries, errors = [], []
    for line in out.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            binaries.append(message["executable"])
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            spans = message["message"]["spans"]
            errors += [(span["file_name"], span["line_start"], span["line_end"]) for span in spans]
            if not spans and "aborting" not in message["message"]["message"]:
                errors.append((message["message"]["message"], 0, 0))
    if out.returncode != 0 and not errors:
        sys.exit(out.stderr[-3000:])
    return binaries, errors


def prepare(package, folder, sample, scratch):
    """A copy of the workspace with the sample in it; what had no form that compiles."""
    mutants = listed(package)
    random.Random(sample.seed).shuffle(mutants)
    pool = [m for m in mutants if not re.search(sample.exclude, m["file"])]
    print(f"{len(pool)} mutants of {package}; a sample of {sample.size}, seed {sample.seed}")
    chosen, refused, next_one = [], [], 0
    copy, pristine = scratch / "copy", scratch / "pristine"
    # Once, so that the tree may change while this runs.
    shutil.rmtree(pristine, ignore_errors=True)
    shutil.copytree(ROOT, pristine, ignore=shutil.ignore_patterns(
        ".git", "target", "corpus", "artifacts"), symlinks=True)
    while True:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(pristine, copy, symlinks=True)
        while len(chosen) < sample.size and next_one < len(pool):
            chosen.append((next_one, pool[next_one]))
            next_one += 1
        files, formless = {}, []
        for number, mutant in chosen:
            path = copy / mutant["file"]
            file = files.setdefault(path, File(path))
            if not file.add(number, mutant):
                formless.append((number, mutant))
        if formless:
            refused += formless
            chosen = [entry for entry in chosen if entry not in formless]
            continue
        for file in files.values():
            file.write()
        with open(copy / folder / "src/lib.rs", "a") as lib:
            lib.write(SWITCH)
        binaries, errors = build(copy, package, scratch.parent / "target")
        if not errors:
            return binaries, chosen, refused
        bad = set()
        for name, first, last in errors:
            path = copy / name
            if not path.is_file():
                continue
            text = path.read_text().splitlines()
            for line in text[max(0, first - 1):last]:
                bad |= {int(n) for n in re.findall(r"crate::mutant\((\d+)\)", line)}
        if not bad:
            sys.exit(f"does not compile, and no mutant stands there: {errors[:5]}")
        print(f"{len(bad)} do not compile: others in their place")
        refused += [entry for entry in chosen if entry[0] in bad]
        chosen = [entry for entry in chosen if entry[0] not in bad]


def tests_of(binary, cwd):
    out = subprocess.run([binary, "--list", "--format", "terse"], cwd=cwd,
                         capture_output=True, text=True, check=True)
    return [line[:-6] for line in out.stdout.splitlines() if line.endswith(": test")]


def run(binary, names, cwd, limit, **env):
    """Exit status, or None if it ran out of processor time; seconds of it used."""
    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    env = dict(os.environ, PROPTEST_CASES="16", RUST_BACKTRACE="0", **env)
    child = subprocess.Popen([binary, "--exact", "--test-threads=1", *names], cwd=cwd, env=env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             preexec_fn=bound)
    # Waited for by hand, which tells the processor time that this child took.
    deadline, patience = time.monotonic() + 60 + 10 * limit, 0.001
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            child.kill()
            deadline = float("inf")
        time.sleep(patience)
        patience = min(0.05, 1.5 * patience)
    child.returncode = status = os.waitstatus_to_exitcode(status)
    if status in (-24, -9):
        status = None
    return status, usage.ru_utime + usage.ru_stime


def reach(binary, cwd, scratch, args):
    """By mutant, the tests of this binary that reach it, cheapest first."""
    kept = scratch / f"{pathlib.Path(binary).name}.reached.json"
    if args.built and kept.exists():
        reached = json.loads(kept.read_text(), object_pairs_hook=lambda pairs: {
            int(number): [tuple(test) for test in tests] for number, tests in pairs})
        return reached
    tests = [(binary, name) for name in tests_of(binary, cwd)
             if not (args.skip and re.search(args.skip, name))]
    reached = collections.defaultdict(list)

    def trace(numbered):
        index, (binary, name) = numbered
        path = scratch / f"reached.{index}"
        path.unlink(missing_ok=True)
        status, seconds = run(binary, [name], cwd, 300, CLEARWAY_MUTANTS_REACHED=str(path))
        if status != 0:
            return (binary, name, None, set())
        numbers = {int(n) for n in path.read_text().split()} if path.exists() else set()
        path.unlink(missing_ok=True)
        return (binary, name, seconds, numbers)

    with ThreadPoolExecutor(args.jobs) as pool:
        for binary, name, seconds, numbers in pool.map(trace, enumerate(tests)):
            if seconds is None:
                print(f"{name} fails without any mutant: left out")
            elif seconds > args.heavy:
                print(f"{name} takes {seconds:.0f} s: left out")
            else:
                for number in numbers:
                    reached[number].append((seconds, binary, name))
    for list_ in reached.values():
        list_.sort()
    kept.write_text(json.dumps(reached))
    return reached


def judge(number, tests, cwd):
    """What became of a mutant, and by which test."""
    if not tests:
        return "unreached", None
    at = 0
    while at < len(tests):
        binary, names, total = tests[at][1], [], 0.0
        # So many at once that starting them costs little, so few that a failure ends it soon.
        while at < len(tests) and tests[at][1] == binary and (total < 0.5 or not names):
            total += tests[at][0]
            names.append(tests[at][2])
            at += 1
        status, _ = run(binary, names, cwd, 2 + 8 * total, CLEARWAY_MUTANT=str(number))
        if status is None:
            return "timeout", names[-1]
        if status != 0:
            return "caught", names[-1]
    return "missed", None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package")
    parser.add_argument("--sample", dest="size", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--heavy", type=float, default=5.0,
                        help="leave tests out that take longer than so many seconds")
    parser.add_argument("--skip", help="tests (a regular expression) that are left out")
    parser.add_argument("--exclude", default=r"specimen|testing\.rs|forge\.rs|invariants\.rs|tests?\.rs$|/tests/",
                        help="files (a regular expression) whose mutants are not drawn")
    parser.add_argument("--scratch", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                             pathlib.Path.home() / ".cache")) / "clearway/mutants")
    parser.add_argument("--build-only", action="store_true",
                        help="build, and leave the tests to a later run with --built")
    parser.add_argument("--built", action="store_true", help="test what --build-only built")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as JSON")
    args = parser.parse_args()
    folder = f"crates/{args.package.removeprefix('clearway-')}"
    scratch = args.scratch / args.package
    scratch.mkdir(parents=True, exist_ok=True)
    state = scratch / "built.json"
    if args.built:
        binaries, chosen, refused = json.loads(state.read_text())
    else:
        binaries, chosen, refused = prepare(args.package, folder, args, scratch)
        state.write_text(json.dumps([binaries, chosen, refused]))
        for kept in scratch.glob("*.reached.json"):
            kept.unlink()  # of another build
    if args.build_only:
        return
    cwd = scratch / "copy" / folder
    os.environ["CARGO_MANIFEST_DIR"] = str(cwd)
    results, pending = {}, chosen
    # Unit tests first: most mutants end there, and the others cost more.
    for binary in sorted(binaries, key=lambda path: pathlib.Path(path).name.startswith("it-")):
        reached = reach(binary, cwd, scratch, args)
        left = []
        with ThreadPoolExecutor(args.jobs) as pool:
            work = lambda entry: (entry, judge(entry[0], reached.get(entry[0], []), cwd))
            for (number, mutant), (verdict, test) in pool.map(work, pending):
                name = mutant["name"]
                if verdict in ("caught", "timeout"):
                    results[name] = {"verdict": verdict, "test": test}
                else:
                    left.append((number, mutant))
                    if results.get(name, {}).get("verdict") != "missed":
                        results[name] = {"verdict": verdict, "test": None}
                if args.out:  # what there is so far
                    args.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        pending = left
        print(f"{len(pending)} of {len(chosen)} are left after {pathlib.Path(binary).name}",
              flush=True)
    for name, result in sorted(results.items()):
        if result["verdict"] in ("missed", "unreached"):
            print(f"{result['verdict']}: {name}")
    counts = collections.Counter(result["verdict"] for result in results.values())
    caught = counts["caught"] + counts["timeout"]
    print(f"{caught} of {len(chosen)} caught: {100 * caught / max(1, len(chosen)):.1f} %; "
          f"{dict(counts)}; not compiled: {len(refused)}")


if __name__ == "__main__":
    main()
