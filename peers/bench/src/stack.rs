//! The programs that are measured.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Where programs that cargo does not build are, below the home folder.
const PROGRAMS: &str = ".cache/clearway/bin";

/// One stack's program.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    /// Whether it speaks HTTP/3.
    pub(crate) http3: bool,
}

/// The stacks whose programs are built; says which are not.
pub(crate) fn found(programs: Option<PathBuf>) -> Result<Vec<Stack>> {
    let ours = std::env::current_exe()?;
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(PROGRAMS);
    let others = programs.unwrap_or_else(home);
    let stack = |name, program, http3| Stack {
        name,
        program,
        http3,
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
    Ok(stacks)
}

/// Has quinn's raw program write certificates.
pub(crate) fn certify(folder: &Path) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("peer-quinn");
    let status = Command::new(&program).args(["cert", "--out"]).arg(folder).status();
    let status = status.with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{} made no certificates", program.display());
    Ok(())
}
