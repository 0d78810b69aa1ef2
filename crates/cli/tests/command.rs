//! The command line as users meet it: the exit code and the message of each wrong input.

mod schema;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn tidewire() -> Command {
    let mut command = Command::cargo_bin("tidewire").unwrap();
    command.env_remove("TIDEWIRE_LINK").env("TIDEWIRE_CONFIG", "/dev/null");
    command
}

/// A fresh secret.
fn secret() -> String {
    let output = tidewire().arg("keygen").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs with `arguments`. The command must refuse them as wrong usage, with all of `texts` in its message.
fn refused(arguments: &[&str], texts: &[&str]) {
    let mut assert = tidewire().args(arguments).assert().code(2);
    for text in texts {
        assert = assert.stderr(contains(*text));
    }
}

#[test]
fn the_log_shows_a_connection_and_a_wrong_filter_is_refused() {
    let wrong = tidewire().env("TIDEWIRE_LOG", "tidewire=loud").arg("keygen").assert().code(2);
    wrong.stderr(contains("TIDEWIRE_LOG=tidewire=loud").and(contains("tidewire=debug")));
    let mut listener = Process::new(env!("CARGO_BIN_EXE_tidewire"));
    listener.args(["pipe", "--listen", "127.0.0.1:0"]).env("TIDEWIRE_CONFIG", "/dev/null");
    let mut listener = listener.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(listener.stderr.take().unwrap()).lines();
    let mut words =
        said.map_while(Result::ok).flat_map(|line| line.split(['\'', ' ']).map(str::to_owned).collect::<Vec<_>>());
    let link = words.find(|word| word.starts_with("tidewire://")).unwrap();
    let connected = tidewire().env("TIDEWIRE_LOG", "debug").args(["pipe", &link]).assert().success();
    connected.stderr(contains("connection{id=0 remote=127.0.0.1:").and(contains("connected")).and(contains("closed")));
    assert!(listener.wait().unwrap().success());
}

#[test]
fn more_threads_than_cores_are_warned_of() {
    let cores = std::thread::available_parallelism().unwrap().get();
    // The address of another machine ends the job.
    let listen = |count: usize| {
        let count = count.to_string();
        let options = ["pipe", "--listen", "192.0.2.1:0", "--threads", &count, "--workers", &count];
        tidewire().args(options).assert().code(7)
    };
    let warned = |option| contains(format!("{option} {} is more than the {cores} cores", cores + 1));
    listen(cores + 1).stderr(warned("--threads").and(warned("--workers")));
    listen(cores).stderr(contains("is more than").not());
}

#[test]
fn wrong_options_and_units_end_with_2_and_an_example() {
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    refused(&["send", "x", &link, "--max-rate", "20"], &["\"20\" has no unit", "25mbit"]);
    refused(&["send", "x", &link, "--max-rate", "fast"], &["\"fast\" is not a rate", "25mbit"]);
    refused(&["send", "x", &link, "--max-overhead", "0.25"], &["has no unit", "10%"]);
    refused(&["send", "x", &link, "--redundancy", "lots"], &["lots", "every:5"]);
    refused(&["send", "x", &link, "--profile", "fast"], &["fast", "stream"]);
    refused(&["send", "x", &link, "--code", "cauchi"], &["cauchi", "did you mean \"cauchy\"?", "rlc, cauchy, rlc16"]);
    refused(
        &["send", "x", &link, "--rate-control", "warp"],
        &["warp", "share, cubic, newreno, aimd:1,80, train, fixed:25mbit"],
    );
    refused(&["send", "x", &link, "--rate-control", "bbr"], &["replaced by \"share\"", "write share"]);
    refused(&["send", "x", &link, "--latencey", "1ms"], &["--latencey"]);
    refused(&["send", "x", &link, "--json", "--quiet"], &["cannot be used with"]);
    refused(&["receive", "--listen", "7700"], &["7700"]);
    refused(&["forward", "-L", "8080:web", &link], &["8080:web", "8080:web.example:80"]);
    refused(&["forward", "-L", "8080:web:80"], &["TIDEWIRE_LINK", "tidewire://"]);
    refused(&["forward", &link], &["-L", "-D", "-R", "-W"]);
    refused(&["forward", "-D", "10.0.0.1:1080", &link], &["10.0.0.1:1080", "password", "127.0.0.1:PORT"]);
    refused(&["forward", "-R", "8080", &link], &["8080", "8080:web.example:80"]);
    refused(&["forward", "-W", "web", &link], &["web", "HOST:PORT"]);
    refused(&["forward", "-W", "web:22", "-D", "1080", &link], &["cannot be used with"]);
    refused(&["serve"], &["--allow"]);
    refused(&["serve", "--allow", "web"], &["web", "HOST:PORT"]);
    refused(&["serve", "--allow", "w*b:80"], &["`w*b:80`", "*.example.com:443"]);
    refused(&["serve", "--allow", "listen=web:80"], &["`listen=web:80`", "listen=8080"]);
    refused(&["pipe", &link, "--listen", "127.0.0.1:0"], &["cannot be used with"]);
    refused(&["bench"], &["--server"]);
    refused(&["bench", "-s", "--require", "p95<=1ms"], &["cannot be used with"]);
    refused(&["bench", "-c", &link, "--require", "p95<1ms"], &["p95<1ms", "goodput>=20mbit"]);
    refused(&["probe", &link, "--latency", "80"], &["--latency", "\"80\" has no unit"]);
    refused(&["fly"], &["fly"]);
}

#[test]
fn options_that_a_verb_cannot_use_are_refused() {
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    refused(&["relay", "--to", &link, "--threads", "2"], &["one thread", "--threads"]);
    refused(&["relay", "--to", &link, "--relayed"], &["leave --relayed out"]);
    refused(&["receive", "--relayed", "--threads", "2", "--listen", "127.0.0.1:0"], &["leave --threads out"]);
    for option in ["--hop-key", "--authorized-relays"] {
        let listen = "tidewire://127.0.0.1:0";
        refused(&["live", "udp://:5000", listen, "--relayed", option, "x"], &["no --via", "leave --relayed out"]);
    }
    for verb in [&["keygen"][..], &["config", "check"], &["man"], &["completions", "bash"], &["help"]] {
        refused(&[verb, &["--backend", "xdp:eth0"]].concat(), &["leave --backend out"]);
    }
}

#[test]
fn times_of_a_bench_are_seconds_with_decimals() {
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    // The times are accepted, so the error is about the length.
    for time in ["1.5", "2", "0.25s"] {
        refused(&["bench", "-c", &link, "-t", time, "-i", time, "-l", "3"], &["16 bytes"]);
    }
    for time in ["1.5.2", "-1", "", "1h2"] {
        tidewire().args(["bench", "-c", &link, &format!("--time={time}")]).assert().code(2);
    }
}

#[test]
fn help_of_profiles_is_a_page_and_wrong_words_are_refused() {
    tidewire()
        .args(["help", "profiles"])
        .assert()
        .success()
        .stdout(contains("bucket:CAP,GAMMA").and(contains("raptorq")));
    tidewire()
        .args(["help", "tunnel", "up"])
        .assert()
        .success()
        .stdout(contains("--address").and(contains("--workers")));
    refused(&["help", "fly"], &["`fly` is not a verb"]);
}

#[test]
fn choices_that_do_not_go_together_end_with_2_and_what_to_choose() {
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    for job in
        [&["send", "x", &link][..], &["serve", "--allow", "h:1"], &["bench", "-s"], &["receive"], &["pipe", &link]]
    {
        refused(&[job, &["--code", "cauchy"]].concat(), &["code cauchy needs generations", "block:K,R"]);
        let options = ["--profile", "block:250,10", "--code", "cauchy"];
        refused(&[job, &options].concat(), &["250 with 10 are 260", "rlc16"]);
        refused(&[job, &["--redundancy", "block:32,8"]].concat(), &["block:32,8 needs generations"]);
        refused(&[job, &["--profile", "pipeline:65,1.25"]].concat(), &["G from 1 to 64 symbols, and R from 1 to 4"]);
        refused(&[job, &["--profile", "bucket:15,0.9"]].concat(), &["GAMMA from 1 to 1.5"]);
        refused(&[job, &["--redundancy", "pipeline:16,1.25,resend"]].concat(), &["the answer resend", "deficit"]);
        refused(&[job, &["--profile", "pipeline", "--rate-control", "open"]].concat(), &["flood the path", "share"]);
        refused(
            &[job, &["--profile", "block", "--redundancy", "every:5"]].concat(),
            &["every:5 needs a sliding window"],
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs::write(&file, "code = \"rlc61\"\n").unwrap();
    let said = format!("{}:1: code: ", file.display());
    tidewire()
        .arg("keygen")
        .env("TIDEWIRE_CONFIG", &file)
        .assert()
        .code(2)
        .stderr(contains(said))
        .stderr(contains("\"rlc16\""));
}

#[test]
fn wrong_links_end_with_2_and_never_show_the_secret() {
    let secret = secret();
    for (link, text) in [
        (format!("tidewire://h:99999/#{secret}"), "99999"),
        (format!("tidewire://2001:db8::1:7700/#{secret}"), "brackets"),
        (format!("tidewire://h/?speed=1#{secret}"), "latency="),
        (format!("tidewire://h/?maxbw=20#{secret}"), "has no unit"),
        (format!("tidewire://h/?latency=80#{secret}"), "has no unit"),
        (format!("tidewire://h/?mode=caller#{secret}"), "`mode=` is not known"),
        (format!("tidewire://h/#{}", &secret[..secret.len() - 2]), "copy all of it"),
        ("tidewire://h/".to_owned(), "no #SECRET"),
    ] {
        let hidden = contains(&secret[4..20]).not();
        tidewire().args(["send", "x", &link]).assert().code(2).stderr(contains(text)).stderr(hidden);
    }
    for mistyped in [format!("idewire://h:1/#{secret}"), format!("h:1/#{secret}"), format!("h#{secret}")] {
        for verb in [&["send", "x", &mistyped][..], &["forward", "-L", "1:h:1", &mistyped]] {
            let hidden = contains(&secret[4..20]).not();
            tidewire().args(verb).assert().code(2).stderr(contains("link")).stderr(hidden);
        }
    }
    refused(&["send", "x"], &["TIDEWIRE_LINK", "tidewire://", "user@host.example:FOLDER"]);
    refused(&["send", "x", "./a:b"], &["neither a link nor a host"]);
    refused(&["send", "x", "-oProxyCommand=x:y"], &["-o"]);
    refused(&["send", "--", "x", "-oProxyCommand=x:y"], &["neither a link"]);
    refused(&["send", &format!("tidewire://h/#{secret}")], &["no file or folder is named"]);
    tidewire().args(["send", "x"]).env("TIDEWIRE_LINK", "tidewire://h").assert().code(2).stderr(contains("no #SECRET"));
    refused(&["send", "x", "@no-such-file"], &["no-such-file"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("link");
    fs::write(&file, format!("tidewire://h/?latency=1#{secret}\n")).unwrap();
    refused(&["probe", &format!("@{}", file.display())], &[&format!("{}:1: latency= in the link: ", file.display())]);
    tidewire()
        .args(["send", "x"])
        .env("TIDEWIRE_LINK", "tidewire://h")
        .assert()
        .code(2)
        .stderr(contains("TIDEWIRE_LINK: "));
}

#[test]
fn a_link_is_also_read_from_a_file_and_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("link");
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    fs::write(&file, format!("{link}\n")).unwrap();
    // The link is accepted, so the error is about the missing source.
    let at = format!("@{}", file.display());
    tidewire().args(["send", "/no/such/source", &at]).assert().code(7).stderr(contains("vanished"));
    tidewire().args(["send", "/no/such/source"]).env("TIDEWIRE_LINK", &link).assert().code(7);
}

#[test]
fn sources_that_cannot_be_sent_end_with_7_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let link = format!("tidewire://127.0.0.1:1/#{}", secret());
    let device = ["send", "--json", "/dev/null", &link];
    let assert = tidewire().args(device).assert().code(7);
    let lines = schema::lines(&assert.get_output().stdout);
    assert_eq!((&lines[0]["event"], &lines[0]["reason"]), (&"file".into(), &"not a file".into()));
    assert_eq!((&lines[1]["event"], &lines[1]["exit"]), (&"error".into(), &7.into()));
    for name in ["one", "two"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("same"), b"x").unwrap();
    }
    let same = |name: &str| folder.path().join(name).join("same").display().to_string();
    refused(&["send", &same("one"), &same("two"), &link], &["two paths would both arrive as `same`"]);
    refused(&["send", "/", &link], &["has no name"]);
}

#[test]
fn a_folder_that_cannot_be_received_into_ends_with_7() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    tidewire().args(["receive", "--dir", path]).assert().code(7).stderr(contains(path));
    tidewire().args(["receive", "--dir", "/no/such/folder"]).assert().code(7).stderr(contains("/no/such/folder"));
    refused(&["receive", "--key", "/no/such/key"], &["/no/such/key"]);
}

#[test]
fn keygen_writes_for_its_owner_only_and_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let name = path.to_str().unwrap();
    tidewire().args(["keygen", "-o", name]).assert().success().stdout("");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("tws1") && text.trim().len() == 60, "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    tidewire().args(["keygen", "-o", name]).assert().code(7).stderr(contains(name));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn help_states_the_exit_codes() {
    tidewire().arg("--help").assert().success().stdout(contains("130  stopped by Ctrl-C"));
}

#[test]
fn completions_and_manual_name_every_verb() {
    for shell in ["bash", "fish", "zsh"] {
        tidewire().args(["completions", shell]).assert().success().stdout(contains("redundancy"));
    }
    refused(&["completions", "tcsh"], &["tcsh", "bash"]);
    let manual = tidewire().arg("man").output().unwrap();
    let manual = String::from_utf8(manual.stdout).unwrap();
    let help = tidewire().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs: Vec<_> = listed.take_while(|line| !line.starts_with("  -")).collect();
    assert!(verbs.len() > 15, "{help}");
    for verb in verbs.iter().map(|line| line.split_whitespace().next().unwrap()).filter(|verb| *verb != "help") {
        assert!(manual.contains(&format!(".SS tidewire {verb}")), "{verb} is missing");
    }
}

#[test]
fn verbs_that_moved_answer_with_what_to_write_instead() {
    for (arguments, now) in [
        (&["lab", "link", "--to", "h:1"][..], "write tidewire-lab link --to h:1"),
        (&["lab", "--help"], "write tidewire-lab --help"),
        (&["sim", "x.toml", "--json"], "write tidewire-lab sim x.toml --json"),
        (&["papers"], "write tidewire-lab papers"),
    ] {
        refused(arguments, &[now]);
    }
}

#[test]
fn settings_are_checked_and_shown_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let path = file.to_str().unwrap();
    let with_file = |arguments: &[&str]| {
        let mut command = tidewire();
        command.args(arguments).env("TIDEWIRE_CONFIG", path);
        command
    };
    fs::write(&file, "max-rate = \"20mbit\"\n[receive]\ndir = \"/no/such/folder\"\n").unwrap();
    with_file(&["config", "check"]).assert().success().stdout(contains("2 settings"));
    // The settings are accepted, so the error is about the missing folder.
    with_file(&["receive"]).assert().code(7).stderr(contains("/no/such/folder"));
    let mut show = with_file(&["config", "show", "receive", "--listen", "[::1]:1"]);
    let shown = show.env("TIDEWIRE_PROFILE", "arq").assert().success();
    let shown = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    for (key, value, origin) in [
        ("max-rate", "20mbit", &*format!("{path}:1")),
        ("dir", "/no/such/folder", &format!("{path}:3")),
        ("profile", "arq", "TIDEWIRE_PROFILE"),
        ("listen", "[::1]:1", "command line"),
        ("once", "false", "default"),
    ] {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        assert_eq!(line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "), format!("{value} {origin}"));
    }
    fs::write(&file, "max-rte = \"20mbit\"\n").unwrap();
    for arguments in [&["config", "check"][..], &["config", "check", path], &["keygen"]] {
        let said = format!("{path}:1: max-rte: no such key; did you mean \"max-rate\"?");
        with_file(arguments).assert().code(2).stderr(contains(said));
    }
    with_file(&["keygen"]).env("TIDEWIRE_CONFIG", "/no/such/file").assert().code(2).stderr(contains("/no/such/file"));
}
