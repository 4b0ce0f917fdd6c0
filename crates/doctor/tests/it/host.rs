//! Two network namespaces with a cable between them, and programs in them.
//!
//! Needs root and `ip`; [`Host::new`] says so and returns `None` where they are missing. Namespaces and
//! programs go with the test, also if it fails.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clearway_doctor::{Diagnosis, Focus, Namespace, Recording};

/// Why a test cannot go on.
const STOOD_STILL: &str = "the machine stood still five times in a row";

/// Where programs receive.
pub const RECEIVER: &str = "10.99.0.2";
/// Where programs send from.
pub const SENDER: &str = "10.99.0.1";

/// A sending and a receiving namespace, connected by a veth pair.
pub struct Host {
    pub sending: String,
    pub receiving: String,
}

/// Whether a tool is there; says so if it is not.
pub fn has(tool: &str) -> bool {
    let paths = [
        "/usr/sbin",
        "/sbin",
        "/usr/bin",
        "/bin",
        "/usr/local/go/bin",
    ];
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()))
        || paths
            .iter()
            .any(|folder| std::path::Path::new(folder).join(tool).is_file());
    if !found {
        println!("skipped: this test needs the program {tool:?}");
    }
    found
}

impl Host {
    /// Makes the namespaces, or says why the test is skipped.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: this test makes network namespaces, which needs root");
            return None;
        }
        if !has("ip") {
            return None;
        }
        let id = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let host = Self {
            sending: format!("doctor-s-{id}"),
            receiving: format!("doctor-r-{id}"),
        };
        for namespace in [&host.sending, &host.receiving] {
            if !run("ip", &["netns", "add", namespace]) {
                println!("skipped: network namespaces cannot be made here");
                return None;
            }
        }
        host.connect();
        Some(host)
    }

    fn connect(&self) {
        let (s, r) = (self.sending.as_str(), self.receiving.as_str());
        let cable = [
            "link", "add", "out", "netns", s, "type", "veth", "peer", "in", "netns", r,
        ];
        assert!(run("ip", &cable));
        // Both know each other's hardware address: datagrams that wait for it to be found out would be lost
        // before anything that is tested, and for a second if the first question was too early.
        let hardware = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
        for (namespace, device, address, own, other, others) in [
            (s, "out", SENDER, hardware[0], RECEIVER, hardware[1]),
            (r, "in", RECEIVER, hardware[1], SENDER, hardware[0]),
        ] {
            let address = format!("{address}/24");
            for arguments in [
                &["link", "set", device, "address", own][..],
                &["addr", "add", &address, "dev", device],
                &["link", "set", device, "up"],
                &["link", "set", "lo", "up"],
                &[
                    "neigh",
                    "add",
                    other,
                    "lladdr",
                    others,
                    "dev",
                    device,
                    "nud",
                    "permanent",
                ],
            ] {
                assert!(
                    run("ip", &[&["-n", namespace], arguments].concat()),
                    "{arguments:?}"
                );
            }
        }
    }

    /// Runs a tool to its end in a namespace.
    pub fn run_in(&self, namespace: &str, tool: &str, arguments: &[&str]) -> bool {
        run(
            "ip",
            &[&["netns", "exec", namespace, tool], arguments].concat(),
        )
    }

    /// Starts a program of [`super::program`] and waits until it is ready.
    pub fn start(&self, namespace: &str, program: &str) -> Program {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace])
            .arg(exe)
            .args(["--exact", "program::program", "--nocapture"])
            .env(super::program::VARIABLE, program);
        Program::start(command)
    }

    /// Starts any program that prints `doctor: ready` and then counts as [`Program::count`] says.
    pub fn start_other(&self, namespace: &str, program: &[&str]) -> Program {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).args(program);
        Program::start(command)
    }

    /// Starts a sender: `rate` datagrams a second of `size` bytes to `port` of the receiver.
    pub fn send(&self, port: u16, rate: u32, size: usize) -> Program {
        let program = format!("send {RECEIVER}:{port} {rate} {size} 1");
        self.start(&self.sending, &program)
    }

    /// Examines the receiving namespace.
    pub fn examine(&self, interval: Duration) -> Diagnosis {
        self.record(&self.receiving, &Focus::default(), interval).1
    }

    /// Examines a namespace.
    pub fn record(
        &self,
        namespace: &str,
        focus: &Focus,
        interval: Duration,
    ) -> (Recording, Diagnosis) {
        let mut attempts = (0..5).map(|_| self.record_once(namespace, focus, interval));
        attempts.find_map(|attempt| attempt).expect(STOOD_STILL)
    }

    /// Examines a namespace while programs count. Returns what each counted over the time that was
    /// examined.
    pub fn examine_counting(
        &self,
        namespace: &str,
        interval: Duration,
        programs: &mut [&mut Program],
    ) -> (Diagnosis, Vec<f64>) {
        for _ in 0..5 {
            let before: Vec<u64> = programs.iter_mut().map(|program| program.count()).collect();
            let begun = std::time::Instant::now();
            let found = self.record_once(namespace, &Focus::default(), interval);
            let elapsed = begun.elapsed().as_secs_f64();
            let after = programs.iter_mut().map(|program| program.count());
            let counted = after.zip(before).map(|(after, before)| after - before);
            // They were asked a little earlier and later than the samples were taken. If it was much
            // earlier or later, nobody knows what they counted meanwhile.
            let part = |diagnosis: &Diagnosis| diagnosis.seconds / elapsed;
            if let Some((_, diagnosis)) = found.filter(|found| part(&found.1) > 0.9) {
                let counted = counted
                    .map(|count| count as f64 * part(&diagnosis))
                    .collect();
                return (diagnosis, counted);
            }
        }
        panic!("{STOOD_STILL}");
    }

    /// Examines a namespace; `None` if the machine stood still meanwhile, as a virtual one may: shares
    /// of time mean nothing then.
    pub fn record_once(
        &self,
        namespace: &str,
        focus: &Focus,
        interval: Duration,
    ) -> Option<(Recording, Diagnosis)> {
        let namespace = Namespace::Named(namespace.to_owned());
        let (recording, diagnosis) =
            clearway_doctor::diagnose(&namespace, focus, interval).unwrap();
        println!("{}", clearway_doctor::render::text::text(&diagnosis, false));
        (diagnosis.seconds < 2.0 * interval.as_secs_f64()).then_some((recording, diagnosis))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for namespace in [&self.sending, &self.receiving] {
            run("ip", &["netns", "del", namespace]);
        }
    }
}

/// Runs a tool to its end, quietly.
pub fn run(tool: &str, arguments: &[&str]) -> bool {
    let output = Command::new(tool).args(arguments).output();
    output.is_ok_and(|output| {
        if !output.status.success() {
            println!(
                "{tool} {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        output.status.success()
    })
}

/// A program that ends with the test.
pub struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self {
            child,
            stdin,
            stdout,
        };
        program.line("doctor: ready");
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many datagrams it has sent or read so far.
    pub fn count(&mut self) -> u64 {
        writeln!(self.stdin, "count").unwrap();
        self.stdin.flush().unwrap();
        self.line("doctor: count ").trim().parse().unwrap()
    }

    /// What follows `prefix` in the next line that has it.
    fn line(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.stdout.read_line(&mut line).unwrap() > 0,
                "the program ended"
            );
            // The test harness of the program writes into the same line.
            if let Some((_, rest)) = line.split_once(prefix) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether two numbers differ by at most 15 % of the second.
#[track_caller]
pub fn assert_close(what: &str, found: f64, truth: f64) {
    println!(
        "{what}: found {found:.1}, truth {truth:.1}, {:+.1} %",
        (found / truth - 1.0) * 100.0
    );
    assert!(
        (found - truth).abs() <= truth * 0.15,
        "{what}: found {found}, but the truth is {truth}"
    );
}
