//! The measured programs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The folder of programs that cargo does not build, below the home folder.
const PROGRAMS: &str = ".cache/clearway/bin";

/// The program of a stack.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    /// Whether it supports HTTP/3.
    pub(crate) http3: bool,
    /// Arguments that replace its defaults.
    pub(crate) tuning: &'static [&'static str],
}

/// Windows that are not filled on loopback, and socket buffers for bursts of 64 handshakes.
const TUNING: [&str; 4] = ["--window", "16777216", "--socket-buffer", "4194304"];

/// The key exchange of other stacks on rustls, which support only this one as they are built here.
const X25519: [&str; 1] = ["--x25519"];

/// Returns the stacks whose programs are built, and again with their best settings if requested.
/// Prints which are not built.
pub(crate) fn found(programs: Option<PathBuf>, tuned: bool) -> Result<Vec<Stack>> {
    let ours = std::env::current_exe()?;
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(PROGRAMS);
    let others = programs.unwrap_or_else(home);
    let stack = |name, program, http3| Stack {
        name,
        program,
        http3,
        tuning: &[],
    };
    let mut stacks = vec![
        stack("clearway", ours.with_file_name("peer-clearway"), true),
        stack("quinn", ours.with_file_name("peer-h3-quinn"), true),
        stack("s2n-quic", ours.with_file_name("peer-s2n-quic"), false),
        stack("quic-go", others.join("peer-quic-go"), true),
        stack("tokio-quiche", others.join("peer-tokio-quiche"), true),
    ];
    stacks.retain(|stack| {
        let built = stack.program.exists();
        if !built {
            eprintln!("{}: not built ({})", stack.name, stack.program.display());
        }
        built
    });
    if tuned {
        let names: [(_, _, &[_]); 5] = [
            ("clearway", "clearway X25519", &X25519),
            ("quinn", "quinn tuned", &TUNING),
            ("s2n-quic", "s2n-quic tuned", &TUNING),
            ("quic-go", "quic-go tuned", &TUNING),
            ("tokio-quiche", "tokio-quiche tuned", &TUNING),
        ];
        for (name, tuned, tuning) in names {
            let stack = stacks.iter().find(|stack| stack.name == name).cloned();
            stacks.extend(stack.map(|stack| Stack {
                name: tuned,
                tuning,
                ..stack
            }));
        }
    }
    Ok(stacks)
}

/// Lets quinn's raw program write certificates.
pub(crate) fn certify(folder: &Path) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("peer-quinn");
    let status = Command::new(&program)
        .args(["cert", "--out"])
        .arg(folder)
        .status();
    let status = status.with_context(|| format!("starting {}", program.display()))?;
    ensure!(
        status.success(),
        "{} failed to write certificates",
        program.display()
    );
    Ok(())
}
