//! `tidewire-lab papers` as users run it: which arguments it refuses, and which results are the same on every
//! machine.

#[path = "../../../crates/cli/tests/process/mod.rs"]
mod process;
#[path = "../../../crates/cli/tests/schema/mod.rs"]
mod schema;

use std::fs;
use std::path::Path;

use process::lab;

/// Returns the exit code and the message.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = lab(&["papers"]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_names_are_refused_with_those_there_are() {
    for (arguments, wanted) in [
        (&["streaming"][..], "`streaming` is not a paper; the papers are: streaming-code-5g, sphinx"),
        (
            &["streaming-code-5g", "--only", "figure-3"],
            "--only names no experiment; the experiments are: figure-1, figure-2, figure-5, ",
        ),
        (&["--only", "figure-1"], "required arguments were not provided"),
    ] {
        let (code, said) = refused(arguments);
        assert!(code == Some(2) && said.contains(wanted), "{arguments:?}: {said}");
    }
}

/// The command writes the kept data again, byte for byte, on every machine.
#[test]
fn the_data_that_is_kept_comes_out_again() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/streaming-code-5g/data");
    let made = tempfile::tempdir().unwrap();
    for name in ["figure-5", "table-1"] {
        let out = made.path().to_str().unwrap();
        let output = lab(&["papers", "streaming-code-5g", "--only", name, "--out", out]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let file = format!("{name}.csv");
        let [made, kept] = [made.path(), &kept].map(|folder| fs::read_to_string(folder.join(&file)).unwrap());
        assert!(made == kept, "{file}: regenerate it, or say why it differs");
    }
}

#[test]
fn the_rows_are_printed_as_they_are_written() {
    let made = tempfile::tempdir().unwrap();
    let out = made.path().to_str().unwrap();
    let arguments = ["papers", "streaming-code-5g", "--only", "table-1", "--json", "--out", out];
    let output = lab(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines = schema::lines(&output.stdout);
    let written: serde_json::Value =
        serde_json::from_slice(&fs::read(made.path().join("table-1.json")).unwrap()).unwrap();
    let written = written.as_array().unwrap();
    assert!(lines.len() == written.len() && lines.len() > 2);
    for (line, row) in lines.iter().zip(written) {
        assert_eq!((&line["event"], &line["figure"]), (&"figure_row".into(), &"table-1".into()));
        assert!(row.as_object().unwrap().iter().all(|(key, value)| line[key] == *value), "{line}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_lab_does_not_measure_is_refused_before_it_begins() {
    let paper = "streaming-code-5g";
    for (arguments, wanted) in [
        (&["--lab"][..], "required arguments were not provided"),
        (&[paper, "--lab", "--full"], "cannot be used with"),
        (
            &[paper, "--lab", "--only", "figure-9"],
            "--only names no experiment; the experiments are: figure-1, figure-1-tcp, figure-2, figure-2-tcp, figure-6",
        ),
    ] {
        let (code, said) = refused(arguments);
        assert!(code == Some(2) && said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_root_the_lab_says_what_it_lacks_and_writes_nothing() {
    use std::os::unix::process::CommandExt;

    let made = tempfile::tempdir().unwrap();
    let out = made.path().join("lab");
    let mut command = lab(&["papers", "streaming-code-5g", "--lab", "--out", out.to_str().unwrap()]);
    if rustix::process::geteuid().is_root() {
        // Every system has the user `nobody`. The current folder may be closed to it.
        command.uid(65_534).current_dir("/");
    }
    let Ok(output) = command.output() else {
        eprintln!("skipped: who is not root cannot run the program where it lies");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("need root"), "{said}");
    assert!(!out.exists());
}

/// Returns the rows that the command prints.
fn printed(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = lab(&["papers"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    schema::lines(&output.stdout)
}

#[test]
fn the_cells_of_an_experiment_are_its_rows() {
    let made = tempfile::tempdir().unwrap();
    let experiment = ["streaming-code-5g", "--only", "table-1", "--json"];
    let whole = printed(&[&experiment[..], &["--out", made.path().to_str().unwrap()]].concat());
    let mut cells = Vec::new();
    for cell in 0.. {
        let mut command = lab(&[&["papers"][..], &experiment, &["--cell", &cell.to_string()]].concat());
        let output = command.current_dir(&made).output().unwrap();
        if output.status.code() != Some(0) {
            let wanted = format!("--cell {cell}: table-1 has {cell} cells, counted from 0");
            let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(output.status.code() == Some(2) && said.contains(&wanted), "{said}");
            break;
        }
        cells.extend(schema::lines(&output.stdout));
    }
    assert!(cells == whole && !cells.is_empty());
    assert!(!made.path().join("papers").exists(), "a cell wrote a file");
}

/// A script stands for the interpreter here. The tests of the Python package run real workers.
#[cfg(unix)]
#[test]
fn the_rows_of_an_executor_are_written_as_they_come() {
    use std::os::unix::fs::PermissionsExt;
    let made = tempfile::tempdir().unwrap();
    let python = made.path().join("python");
    let run = |script: &str| {
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o700)).unwrap();
        let arguments = ["papers", "streaming-code-5g", "--only", "table-1", "--executor", "processes", "--out", "out"];
        let mut command = lab(&arguments);
        let output = command.env("TIDEWIRE_PYTHON", &python).current_dir(&made).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // 0.1 + 0.2, which a reader that rounds once too often does not return.
    let row =
        r#"{"event":"figure_row","curve":"a","how":"model","loss":0.0,"parameter":1.0,"value":0.30000000000000004}"#;
    let (code, said) = run(&format!("echo $@ > asked\necho '{row}'"));
    assert_eq!(code, Some(0), "{said}");
    let written = fs::read_to_string(made.path().join("out/table-1.json")).unwrap();
    assert!(written.contains("0.30000000000000004"), "{written}");
    let asked = fs::read_to_string(made.path().join("asked")).unwrap();
    assert!(asked.starts_with("-m tidewire.papers streaming-code-5g table-1 --cells "), "{asked}");
    for (script, wanted) in
        [("echo row", "a worker printed no row"), ("exit 3", "-m tidewire.papers` failed: exit status: 3")]
    {
        let (code, said) = run(script);
        assert!(code == Some(1) && said.contains(wanted), "{said}");
    }
    fs::remove_file(&python).unwrap();
    let arguments = ["papers", "sphinx", "--executor", "processes"];
    let output = lab(&arguments).env("TIDEWIRE_PYTHON", &python).current_dir(&made).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("set TIDEWIRE_PYTHON"));
}
