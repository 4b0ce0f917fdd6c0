//! What a run leaves behind if it is interrupted: process groups, directories and network
//! namespaces. They are written down here, and a signal that ends the runner ends them first.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// How long a program may take to end when it is asked to, as servers in the public runner.
const GRACE: Duration = Duration::from_secs(1);

/// How often a running program is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// What exists now. Whoever holds it keeps everything else from starting and ending.
static PRESENT: Mutex<Present> = Mutex::new(Present {
    groups: BTreeSet::new(),
    folders: BTreeSet::new(),
    namespaces: BTreeSet::new(),
});

pub(crate) struct Present {
    groups: BTreeSet<i32>,
    pub(crate) folders: BTreeSet<PathBuf>,
    pub(crate) namespaces: BTreeSet<String>,
}

/// Returns what exists now. A signal waits until this is dropped.
pub(crate) fn present() -> MutexGuard<'static, Present> {
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Present {
    fn signal(&self, signal: Signal) {
        for group in self.groups.iter().filter_map(|id| Pid::from_raw(*id)) {
            // It has no more members.
            let _ = kill_process_group(group, signal);
        }
    }

    fn has_running_leaders(&self) -> bool {
        let mut leaders = self.groups.iter().filter_map(|id| Pid::from_raw(*id));
        leaders.any(|leader| !has_exited(leader))
    }

    fn remove(&self) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while self.has_running_leaders() && begun.elapsed() < GRACE {
            std::thread::sleep(POLL);
        }
        self.signal(Signal::KILL);
        for space in &self.namespaces {
            delete_namespace(space);
        }
        for folder in &self.folders {
            remove_folder(folder);
        }
    }
}

/// Has SIGINT, SIGTERM and SIGHUP remove what exists, and end this program.
pub(crate) fn on_signals() -> Result<()> {
    let mut handled = vec![SIGINT, SIGTERM];
    // It is ignored below `nohup`, and stays so.
    handled.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(handled).context("handling signals")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // It is held to the end: no other thread may take the end of a program for its result.
            let present = present();
            present.remove();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Returns whether this program ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Removes a directory.
fn remove_folder(folder: &Path) {
    let begun = Instant::now();
    // A program that was killed a moment ago may still create a file.
    while fs::remove_dir_all(folder).is_err() && folder.exists() && begun.elapsed() < GRACE {
        std::thread::sleep(POLL);
    }
}

/// Deletes a network namespace, if it exists.
pub(crate) fn delete_namespace(name: &str) {
    let mut delete = Command::new("ip");
    delete.args(["netns", "delete", name]).stderr(Stdio::null());
    // A signal to the group of this program has to leave it alone.
    let _ = delete.process_group(0).status();
}

/// A running program and its children: a process group. When it is dropped it is asked to end, so
/// that traces are complete, and killed if it does not.
pub(crate) struct Group {
    leader: Child,
    status: Option<ExitStatus>,
}

impl Group {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut present = present();
        let leader = command.process_group(0).spawn()?;
        present.groups.insert(Pid::from_child(&leader).as_raw_pid());
        Ok(Self {
            leader,
            status: None,
        })
    }

    /// Returns how the program ended, if it did.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && has_exited(self.id()) {
            // After this wait the ID may be another process's, so nothing is signalled meanwhile.
            let mut present = present();
            self.status = Some(self.leader.wait()?);
            if !self.has_members() {
                present.groups.remove(&self.id().as_raw_pid());
            }
        }
        Ok(self.status)
    }

    /// Waits until the program ends.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns what the program writes to standard error, if that is a pipe.
    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.leader.stderr.take()
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    fn has_members(&self) -> bool {
        test_kill_process_group(self.id()).is_ok()
    }

    fn is_registered(&self) -> bool {
        present().groups.contains(&self.id().as_raw_pid())
    }

    /// Returns whether the program and its children have ended.
    fn is_over(&mut self) -> bool {
        matches!(self.try_wait(), Ok(Some(_))) && !self.has_members()
    }

    fn end(&mut self) {
        // The ID is nobody else's while the group has members.
        let _ = kill_process_group(self.id(), Signal::TERM);
        let begun = Instant::now();
        while !self.is_over() && begun.elapsed() < GRACE {
            std::thread::sleep(POLL);
        }
        let mut present = present();
        let _ = kill_process_group(self.id(), Signal::KILL);
        let _ = self.leader.wait();
        present.groups.remove(&self.id().as_raw_pid());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_registered() {
            self.end();
        }
    }
}

/// Returns whether a child has ended. Its ID stays its own.
fn has_exited(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error says that it has been waited for.
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    /// Starts a shell script that prints the ID of a child, and returns that.
    fn with_child(script: &str) -> (Group, Pid) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped());
        let mut group = Group::spawn(&mut command).expect("sh");
        let mut line = String::new();
        let mut lines = BufReader::new(group.take_stderr().expect("a pipe"));
        lines.read_line(&mut line).expect("an ID");
        let id = line.trim().parse().expect("a number");
        (group, Pid::from_raw(id).expect("not zero"))
    }

    /// Returns whether a process runs; one that nobody has waited for does not.
    fn runs(id: Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_pid()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn wait_for_end(id: Pid) {
        while runs(id) {
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn children_of_a_script_end_with_it() {
        for script in [
            "sleep 1000 & echo $! >&2; wait",
            "sleep 1000 & echo $! >&2",
            "trap '' TERM; sleep 1000 & echo $! >&2; wait",
        ] {
            let (group, child) = with_child(script);
            assert!(runs(child), "{script}");
            drop(group);
            wait_for_end(child);
        }
    }

    #[test]
    fn program_that_has_ended_is_forgotten() {
        let mut group = Group::spawn(Command::new("sh").args(["-c", "exit 7"])).expect("sh");
        assert_eq!(group.wait().expect("waited for").code(), Some(7));
        assert_eq!(group.wait().expect("waited for").code(), Some(7));
        assert!(!group.is_registered());
    }

    #[test]
    fn removal_ends_groups_and_removes_folders() {
        let folder = tempfile::tempdir().expect("folder").keep();
        let (group, child) = with_child("sleep 1000 & echo $! >&2; wait");
        let present = Present {
            groups: BTreeSet::from([group.id().as_raw_pid()]),
            folders: BTreeSet::from([folder.clone()]),
            namespaces: BTreeSet::new(),
        };
        present.remove();
        wait_for_end(child);
        assert!(!folder.exists());
    }
}
