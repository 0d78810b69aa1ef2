//! The examples in C, compiled as C11 and as C++17 with the sanitizers of addresses and undefined behaviour,
//! and run over loopback. The sanitizer also reports memory that a program has lost when it ends.
//!
//! Where no C compiler is installed, these tests are skipped.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// How an example is compiled.
#[derive(Clone, Copy)]
struct Dialect {
    name: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
}

const DIALECTS: [Dialect; 2] = [
    Dialect { name: "c", compiler: "cc", options: &["-x", "c", "-std=c11", "-D_POSIX_C_SOURCE=200809L"] },
    Dialect { name: "c++", compiler: "c++", options: &["-x", "c++", "-std=c++17"] },
];

/// Compiles an example against the static library beside this test.
fn compile(example: &str, dialect: Dialect) -> PathBuf {
    let Dialect { name, compiler, options } = dialect;
    let has_compiler = Command::new(compiler).arg("--version").output().is_ok();
    tidewire_testing::needs("compilers for C and C++", has_compiler);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::env::current_exe().expect("the test has a path").with_file_name("libtidewire_capi.a");
    // The examples are for users, the programs beside this test are not.
    let folders = [root.join("examples"), root.join("tests"), env!("CARGO_TARGET_TMPDIR").into()];
    let source = folders.map(|folder| folder.join(format!("{example}.c")));
    let source = source.iter().find(|source| source.exists()).expect("the program is in the tree");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{example}-{name}-{}", std::process::id()));
    let compiled = Command::new(compiler)
        .args(options)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1", "-fsanitize=address,undefined"])
        .arg("-fno-sanitize-recover=all")
        .arg("-I")
        .arg(root.join("include"))
        .arg(source)
        // What follows is no source text.
        .args(["-x", "none"])
        .arg(&library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .output()
        .expect("the compiler starts");
    assert!(compiled.status.success(), "{example} as {name}: {}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Starts a program that prints a link, and reads the link.
fn start(program: &Path, arguments: &[&str]) -> (Child, String) {
    let mut child =
        Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
    (child, link.trim().to_owned())
}

/// Waits for the end of a program that must have nothing to complain about.
fn expect_quiet_end(mut child: Child) {
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() && complaints.is_empty(), "{status}: {complaints}");
}

fn said(output: &Output) -> String {
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Echoes some megabytes; `modes` are the last arguments of server and client.
fn echo(dialect: Dialect, modes: [&[&str]; 2]) {
    let program = compile("echo", dialect);
    let (server, link) = start(&program, &[&["server"], modes[0]].concat());
    let client = Command::new(&program).args([&["client", &link, "8"], modes[1]].concat()).output().unwrap();
    assert!(said(&client).starts_with("8000000 bytes came back"));
    expect_quiet_end(server);
    std::fs::remove_file(program).unwrap();
}

#[test]
fn an_echo_in_c_blocks_at_both_ends() {
    echo(DIALECTS[0], [&[], &[]]);
}

#[test]
fn an_echo_in_cpp_blocks_at_one_end() {
    echo(DIALECTS[1], [&[], &["poll"]]);
}

#[test]
fn an_echo_in_cpp_waits_for_descriptors() {
    echo(Dialect { name: "c++-poll", ..DIALECTS[1] }, [&["poll"], &["poll"]]);
}

#[test]
fn an_echo_in_c_waits_for_descriptors() {
    echo(Dialect { name: "c-poll", ..DIALECTS[0] }, [&["poll"], &["poll"]]);
}

#[test]
fn a_file_arrives_with_its_hash() {
    for dialect in DIALECTS {
        let program = compile("file", dialect);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("from"), folder.join("to"));
        let bytes: Vec<u8> = (0..5_000_011u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let (receiver, link) = start(&program, &["receive", to.to_str().unwrap()]);
        let sender = Command::new(&program).args(["send", from.to_str().unwrap(), &link]).output().unwrap();
        assert!(said(&sender).contains(" arrived: "));
        expect_quiet_end(receiver);
        assert!(std::fs::read(&to).unwrap() == bytes, "{}: another file arrived", dialect.name);
        std::fs::remove_dir_all(folder).unwrap();
        std::fs::remove_file(program).unwrap();
    }
}

#[test]
fn a_wrong_link_is_an_error_with_words() {
    let program = compile("echo", Dialect { name: "c-wrong", ..DIALECTS[0] });
    let client = Command::new(&program).args(["client", "tidewire://127.0.0.1:9/", "1"]).output().unwrap();
    assert_eq!(client.status.code(), Some(1));
    let words = String::from_utf8_lossy(&client.stderr);
    assert!(words.starts_with("tw_connect: the link has no #SECRET at its end"), "{words}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_child_of_fork_is_refused_and_the_parent_goes_on() {
    let program = compile("fork", DIALECTS[0]);
    assert_eq!(said(&Command::new(&program).output().unwrap()), "child and parent are well\n");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn the_client_of_the_page_is_answered() {
    let page = include_str!("../../../docs/c-api.md");
    let text = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has a client");
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.c"), text).unwrap();
    let echo = Dialect { name: "c-page", ..DIALECTS[0] };
    let (client, server) = (compile("page", echo), compile("echo", echo));
    let (echoing, link) = start(&server, &["server"]);
    assert_eq!(said(&Command::new(&client).arg(link).output().unwrap()), "hello\n");
    expect_quiet_end(echoing);
    [client, server].into_iter().for_each(|program| std::fs::remove_file(program).unwrap());
}
