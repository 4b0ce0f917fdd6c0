//! What the options choose: tests, endpoints and pairs. Whatever cannot be run as it was asked for
//! is an error before anything starts.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Run, catalogue, endpoint::Endpoint, jobs::Planned, test::Test};

/// How to build Clearway's endpoint with the profile of this program, thus beside it.
const BUILD: &str = if cfg!(debug_assertions) {
    "cargo build -p interop-endpoint"
} else {
    "cargo build --release -p interop-endpoint"
};

/// The client, then the server.
pub(super) type Pair<'a> = (&'a Endpoint, &'a Endpoint);

/// Returns the tests that the options name, or those that are run by default.
pub(super) fn tests(options: &Run) -> Result<Vec<&'static Test>> {
    let all = || catalogue::ALL.iter();
    if options.tests.is_empty() {
        return Ok(all().filter(|test| options.all || !test.slow).collect());
    }
    let known: Vec<&str> = all().map(|test| test.name).collect();
    let unknown = unknown(&options.tests, &known);
    ensure!(
        unknown.is_empty(),
        "no such test: {} (known tests: {})",
        unknown.join(", "),
        known.join(", ")
    );
    let chosen = |test: &&Test| options.tests.iter().any(|name| name == test.name);
    Ok(all().filter(chosen).collect())
}

/// Returns Clearway's endpoint and those that the options add.
pub(super) fn endpoints(ours: Endpoint, options: &Run) -> Result<Vec<Endpoint>> {
    let mut endpoints = vec![ours];
    for other in options.others.iter().chain(&options.with_http3) {
        let is_taken = endpoints.iter().any(|endpoint| endpoint.name == other.name);
        ensure!(
            !is_taken,
            "the name {:?} is already taken by another endpoint",
            other.name
        );
        endpoints.push(other.clone());
    }
    Ok(endpoints)
}

/// Returns the chosen ones of all pairs: Clearway with itself, and with every other endpoint in
/// both roles.
pub(super) fn pairs<'a>(endpoints: &'a [Endpoint], options: &Run) -> Result<Vec<Pair<'a>>> {
    let Some((ours, others)) = endpoints.split_first() else {
        return Ok(Vec::new());
    };
    check_names(endpoints, options)?;
    let chosen = |endpoint: &Endpoint| {
        options.endpoints.is_empty() || options.endpoints.contains(&endpoint.name)
    };
    ensure!(
        chosen(ours),
        "every pair contains {ours}: add \"--endpoint {ours}\"",
        ours = ours.name
    );
    let mut pairs = Vec::new();
    if !options.others_only {
        pairs.push((ours, ours));
    }
    for other in others.iter().filter(|other| chosen(other)) {
        pairs.extend([(ours, other), (other, ours)]);
    }
    ensure!(
        !pairs.is_empty(),
        "--others-only leaves no pair: choose another endpoint than {}, and add it by \
         \"--with NAME=PROGRAM\"",
        ours.name
    );
    Ok(pairs)
}

fn check_names(endpoints: &[Endpoint], options: &Run) -> Result<()> {
    let known: Vec<&str> = endpoints.iter().map(|it| it.name.as_str()).collect();
    let unknown = unknown(&options.endpoints, &known);
    ensure!(
        unknown.is_empty(),
        "no such endpoint: {} (known endpoints: {}; others are added by \"--with NAME=PROGRAM\")",
        unknown.join(", "),
        known.join(", ")
    );
    Ok(())
}

fn unknown<'a>(names: &'a [String], known: &[&str]) -> Vec<&'a str> {
    let names = names.iter().map(String::as_str);
    names.filter(|name| !known.contains(name)).collect()
}

/// Returns the cells to fill.
pub(super) fn plan<'a>(tests: &[&'a Test], pairs: &[Pair<'a>]) -> Result<Vec<Planned<'a>>> {
    let mut planned = Vec::new();
    for test in tests {
        let concerned = pairs
            .iter()
            .filter(|(client, server)| test.concerns(client, server));
        planned.extend(concerned.map(|&(client, server)| Planned {
            test,
            client,
            server,
        }));
    }
    ensure!(
        !planned.is_empty(),
        "nothing to run: the chosen tests are for clearway with itself only"
    );
    Ok(planned)
}

/// Checks that the endpoints can be started.
pub(super) fn check_programs(endpoints: &[Endpoint]) -> Result<()> {
    for endpoint in endpoints {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        let checked = check_program(&endpoint.program, &folders);
        checked.with_context(|| {
            let name = &endpoint.name;
            if endpoint.ours {
                format!("the endpoint {name} cannot be started (build it by \"{BUILD}\" in peers/)")
            } else {
                format!("the endpoint {name} cannot be started")
            }
        })?;
    }
    Ok(())
}

/// Checks that a program can be executed. Without a slash it is looked for in `folders`.
fn check_program(program: &Path, folders: &[PathBuf]) -> Result<()> {
    if !program.to_string_lossy().contains('/') {
        let found = folders
            .iter()
            .any(|folder| is_executable(&folder.join(program)));
        ensure!(found, "{} is not in PATH", program.display());
        return Ok(());
    }
    let metadata = fs::metadata(program);
    let metadata = metadata.with_context(|| program.display().to_string())?;
    if !metadata.is_file() {
        bail!("{} is not a file", program.display());
    }
    ensure!(
        is_executable(program),
        "{} is not executable",
        program.display()
    );
    Ok(())
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        run: Run,
    }

    fn parse(arguments: &[&str]) -> Result<Run, clap::Error> {
        let arguments = [&["interop"], arguments].concat();
        Arguments::try_parse_from(arguments).map(|it| it.run)
    }

    /// Returns the number of planned cells, or why there are none.
    fn planned(arguments: &[&str]) -> Result<usize, String> {
        let planned = || {
            let options = parse(arguments)?;
            let tests = tests(&options)?;
            let endpoints = endpoints(Endpoint::ours("unused"), &options)?;
            let pairs = pairs(&endpoints, &options)?;
            anyhow::Ok(plan(&tests, &pairs)?.len())
        };
        planned().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn chosen_tests_are_run_with_the_chosen_pairs() {
        for (arguments, cells) in [
            (&["--test", "handshake"][..], 1),
            (&["--test", "handshake", "--with", "x=x"], 3),
            (
                &["--test", "handshake", "--with", "x=x", "--others-only"],
                2,
            ),
            (
                &["--test", "retry", "--with", "x=x", "--endpoint", "clearway"],
                1,
            ),
        ] {
            assert_eq!(planned(arguments), Ok(cells), "{arguments:?}");
        }
    }

    #[test]
    fn options_that_choose_nothing_are_errors() {
        for (arguments, part) in [
            (
                &["--test", "handshake", "--test", "nosuch"][..],
                "no such test: nosuch (known tests: handshake, ",
            ),
            (
                &["--endpoint", "clearway", "--endpoint", "nosuch"],
                "no such endpoint: nosuch (known endpoints: clearway;",
            ),
            (
                &["--with", "x=x", "--endpoint", "x"],
                "add \"--endpoint clearway\"",
            ),
            (&["--others-only"], "\"--with NAME=PROGRAM\""),
            (
                &["--with", "x=x", "--others-only", "--endpoint", "clearway"],
                "choose another endpoint than clearway",
            ),
            (
                &["--with", "clearway=x"],
                "the name \"clearway\" is already taken",
            ),
            (
                &["--with", "x=x", "--with-http3", "x=y"],
                "the name \"x\" is already taken",
            ),
            (
                &["--with", "x=x", "--others-only", "--test", "goodput-bbr"],
                "for clearway with itself only",
            ),
        ] {
            let error = planned(arguments).expect_err("an error");
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn values_that_cannot_be_run_are_usage_errors() {
        for (option, value) in [
            ("--with", "x"),
            ("--with", "=x"),
            ("--with", "x="),
            ("--with", "a|b=x"),
            ("--with", "a b=x"),
            ("--with-http3", "a/b=x"),
            ("--repetitions", "0"),
            ("--jobs", "0"),
            ("--controller", "nosuch"),
        ] {
            assert!(parse(&[option, value]).is_err(), "{option} {value}");
        }
        let error = parse(&["--controller", "nosuch"]).expect_err("an error");
        assert!(error.to_string().contains("cubic"), "{error}");
    }

    #[test]
    fn program_that_cannot_be_executed_is_an_error_with_its_path() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("program");
        let folders = [folder.path().to_owned()];
        let error = |program: &Path| {
            let error = check_program(program, &folders).expect_err("an error");
            format!("{error:#}")
        };
        assert!(error(&path).starts_with(&path.display().to_string()));
        assert!(error(folder.path()).ends_with("is not a file"));
        fs::write(&path, "#!/bin/sh\n").expect("written");
        assert!(error(&path).ends_with("is not executable"));
        assert_eq!(error(Path::new("program")), "program is not in PATH");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        check_program(&path, &folders).expect("executable");
        check_program(Path::new("program"), &folders).expect("in PATH");
    }
}
