//! The command line as users meet it: the exit code and the message of each wrong input.

mod schema;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

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
    refused(&["lab", "link"], &["--to"]);
    refused(&["lab", "link", "--to", "nowhere"], &["--to", "127.0.0.1:7700"]);
    let to = ["lab", "link", "--to", "127.0.0.1:9"];
    refused(&[&to[..], &["--rate", "25"]].concat(), &["--rate", "\"25\" has no unit", "25mbit"]);
    refused(&[&to[..], &["--loss", "gilbert:10%"]].concat(), &["--loss", "gilbert:10%,4"]);
    refused(&[&to[..], &["--loss", "gilbert:90%,2"]].concat(), &["--loss", "impossible"]);
    refused(&["sim", "no-such-scenario.toml"], &["no-such-scenario.toml"]);
    refused(&["fly"], &["fly"]);
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
    for verb in [
        "send",
        "receive",
        "forward",
        "serve",
        "pipe",
        "relay",
        "live",
        "bench",
        "probe",
        "lab link",
        "lab up",
        "lab run",
        "lab check",
        "lab contest",
        "sim",
        "keygen",
        "demo",
    ] {
        assert!(manual.contains(&format!(".SS tidewire {verb}\n")), "{verb} is missing");
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

#[test]
fn sim_gives_the_same_figures_for_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("lossy.toml");
    let text = "seed = 7\n[link]\nrate = \"25mbit\"\nrtt = \"60ms\"\n[forward]\nloss = \"gilbert:10%,4\"\n";
    fs::write(&scenario, text).unwrap();
    let run = |redundancy: &str| {
        let mut command = tidewire();
        command.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json", "--redundancy", redundancy]);
        command.assert().success().get_output().stdout.clone()
    };
    let coded = run("adaptive");
    assert_eq!(coded, run("adaptive"));
    let summary = |stdout: &[u8]| schema::lines(stdout).pop().unwrap();
    let (coded, plain) = (summary(&coded), summary(&run("none")));
    assert_eq!((&coded["event"], &coded["bytes"]), (&"summary".into(), &1_000_000.into()));
    assert!(coded["packets"]["repair"].as_u64() > Some(0));
    assert_eq!(plain["packets"]["repair"], 0);
    let blocks = |code: &str| {
        let mut command = tidewire();
        command.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json", "--profile", "block:32,8", "--code", code]);
        summary(&command.assert().success().get_output().stdout)
    };
    // Another code over the same packets: all of them can repair.
    for code in ["rlc", "cauchy", "rlc16"] {
        assert!(blocks(code)["symbols"]["repaired"].as_u64() > Some(0), "{code}");
    }
    // The scenario's setting of an end counts, unless the command line has another.
    fs::write(&scenario, format!("{text}[near]\nprofile = \"arq\"\n")).unwrap();
    let mut plain = tidewire();
    plain.arg("sim").arg(&scenario).args(["--bytes", "1MB", "--json"]);
    assert_eq!(summary(&plain.assert().success().get_output().stdout)["packets"]["repair"], 0);
    assert!(blocks("rlc")["symbols"]["repaired"].as_u64() > Some(0));
    // A flow with a rate: 2,000 records in four seconds. The report of the link counts its packets.
    let flow = "[[flow]]\nfrom = \"near\"\nbytes = \"2400kB\"\nrate = \"4.8mbit\"\n";
    fs::write(&scenario, format!("{text}{flow}")).unwrap();
    let lines = schema::lines(&run("adaptive"));
    let [link, paced] = lines.last_chunk().unwrap();
    assert_eq!((&link["event"], &paced["records"]["delivered"]), (&"link_stats".into(), &2_000.into()));
    assert!(link["forward"]["lost"].as_u64() > Some(100));
    assert!(paced["records"]["one_way_ms"].as_f64() >= Some(30.0));
    assert!(paced["records"]["steady_delay_ms"]["max"].as_f64() <= paced["records"]["delay_ms"]["max"].as_f64());
    // A video of three seconds: a tenth of the link, and played to its end.
    let video = "[[flow]]\nfrom = \"near\"\nvideo = \"2.5mbit,3s\"\npace = \"live\"\nstartup = \"500ms\"\n";
    fs::write(&scenario, format!("{text}{video}")).unwrap();
    let lines = schema::lines(&run("adaptive"));
    let [_, watched, whole] = lines.last_chunk().unwrap();
    assert_eq!((&watched["event"], &whole["bytes"]), (&"playback".into(), &937_500.into()));
    assert_eq!((&watched["flow"], &watched["stalls"], &watched["played_seconds"]), (&1.into(), &0.into(), &3.0.into()));
    let (start, end) = (watched["first_start_seconds"].as_f64().unwrap(), watched["ended_seconds"].as_f64().unwrap());
    assert!(start > 0.45 && (end - start - 3.0).abs() < 1e-6, "{start} {end}");
    assert_eq!(watched["samples"].as_array().unwrap().last().unwrap()[1], 0.0);
    assert_eq!(whole["records"], serde_json::Value::Null);
    let mut table = tidewire();
    table.arg("sim").arg(&scenario).assert().success().stdout(contains("video, flow 1    starts at 0."));
    fs::write(&scenario, text.replace("25mbit", "25")).unwrap();
    refused(&["sim", scenario.to_str().unwrap()], &["rate", "25mbit"]);
}

#[test]
fn wrong_scenarios_are_named_with_file_line_key_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    let path = file.to_str().unwrap();
    for (text, wanted) in [
        ("[link]\nlos = \"1%\"", ":2: link.los: no such key; did you mean \"loss\"? (allowed: rate, "),
        ("[links]\n", ":1: links: no such key; did you mean \"link\"? (allowed: seed, "),
        ("[link]\nrtt = \"60\"", ":2: link.rtt: \"60\" has no unit; write for example \"60ms\" (units: ns "),
        ("[link]\nloss = \"110%\"", ":2: link.loss: \"110%\" is out of range (0% to 100%); write for example \"10%\""),
        ("[link]\nloss = \"-1%\"", ":2: link.loss: \"-1%\" is not a percentage; write for example \"10%\""),
        ("[link]\nloss = 0.1", ":2: link.loss: write the value with its unit in quotes"),
        ("[link]\nloss = \"gilbert:10%,0.5\"", ":2: link.loss: a mean burst of 0.5 is impossible"),
        ("[link]\nloss = \"gilbert:10%,inf\"", ":2: link.loss: "),
        ("[link]\nreorder = \"2%\"", ":2: link.reorder: \"2%\" is incomplete; write for example \"2%,3ms\""),
        ("[link]\nduplicate = \"101%\"", ":2: link.duplicate: \"101%\" is out of range (0% to 100%)"),
        ("[near]\nmax_overhead = \"130%\"", ":2: near.max_overhead: \"130%\" is out of range (0% to 100%)"),
        ("[near]\ndeliver = \"99.99999%\"", ":2: near.deliver: deliver must be from 50 % to 99.9999 %"),
        ("[far]\nlatency = \"5\"", ":2: far.latency: \"5\" has no unit"),
        ("[far]\nmaxrate = \"5mbit\"", ":2: far.maxrate: no such key; did you mean \"max_rate\"? (allowed: profile, "),
        ("[[flow]]\nfrom = \"left\"\nbytes = \"1MB\"", ":2: flow.from: \"left\" "),
        ("[[flow]]\nfrom = \"near\"\nbytes = \"1\"", ":3: flow.bytes: \"1\" has no unit"),
        ("seed = \"7\"", ":1: seed: write a whole number"),
    ] {
        fs::write(&file, text).unwrap();
        refused(&["sim", path], &[&format!("tidewire: {path}{wanted}")]);
        #[cfg(target_os = "linux")]
        refused(&["lab", "run", path, "--", "true"], &[&format!("tidewire: {path}{wanted}")]);
    }
}

/// The address on which a running `lab link` says that it listens.
fn first_line(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[cfg(unix)]
#[test]
fn lab_link_carries_loses_and_tells() {
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    // This is long, because on a busy machine the first datagram waits until the link runs.
    target.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = target.local_addr().unwrap().to_string();
    let mut process = Process::new(assert_cmd::cargo::cargo_bin("tidewire"))
        .args(["lab", "link", "--listen", "127.0.0.1:0", "--to", &to, "--loss", "50%", "--rtt", "20ms", "--seed", "3"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = first_line(&mut process);
    let address = line.split_whitespace().nth(2).unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        client.send_to(b"tide", &address).unwrap();
    }
    let mut buffer = [0; 16];
    target.recv(&mut buffer).unwrap();
    target.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let arrived = 1 + std::iter::from_fn(|| target.recv(&mut buffer).ok()).count();
    assert!((60..=140).contains(&arrived), "{arrived} of 200 passed a loss of 50 %");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
}

/// A network in the simulator: the same figures each time, every event as the schema has it, and a picture.
#[test]
fn sim_runs_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let (scenario, picture) = (folder.path().join("net.toml"), folder.path().join("net.svg"));
    let text = r#"
time = "5s"
[[node]]
name = "a"
[[node]]
name = "r"
role = "router"
[[node]]
name = "b"
[[link]]
from = "a"
to = "r"
rate = "20mbit"
delay = "5ms"
[[link]]
from = "r"
to = "b"
rate = "10mbit"
delay = "5ms"
queue = "100ms"
discipline = "codel"
[[flow]]
name = "call"
from = "a"
to = "b"
rate = "1mbit"
[[flow]]
kind = "cubic"
from = "a"
to = "b"
"#;
    fs::write(&scenario, text).unwrap();
    let run = || {
        let mut command = tidewire();
        command.arg("sim").arg(&scenario).arg("--json").arg("--svg").arg(&picture);
        command.assert().success().get_output().stdout.clone()
    };
    let output = run();
    assert_eq!(output, run());
    let lines = schema::lines(&output);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["network_flow", "network_flow", "network_link", "network_link"]);
    assert_eq!([&lines[0]["name"], &lines[0]["kind"], &lines[1]["kind"]], ["call", "tidewire", "cubic"]);
    assert!(lines[0]["latency_ms"]["p50"].as_f64() >= Some(10.0) && lines[0]["jitter_ms"]["mean"].is_f64());
    assert!(lines[1]["window"].as_array().unwrap().len() > 50 && lines[1]["goodput_bps"].as_f64() > Some(5e6));
    assert!(lines[3]["forward_queue"].as_array().unwrap().len() >= 49);
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(picture.contains("congestion window") && picture.contains("r-b") && !picture.contains("NaN"));
    // A table for people, and errors that name the line.
    tidewire().arg("sim").arg(&scenario).assert().success().stdout(contains("a > b").and(contains("r-b back")));
    // The second flow in a tunnel, whose settings the command line overrides.
    let tunnel = "[[tunnel]]\nname = \"t\"\nfrom = \"a\"\nto = \"b\"\n[[flow]]\nthrough = \"t\"\nkind = \"cubic\"";
    fs::write(&scenario, text.replace("[[flow]]\nkind = \"cubic\"", tunnel)).unwrap();
    let output = tidewire().arg("sim").arg(&scenario).args(["--json", "--redundancy", "every:5"]).output().unwrap();
    let lines = schema::lines(&output.stdout);
    let [near, far] = [&lines[2]["ends"][0], &lines[2]["ends"][1]];
    assert_eq!([&lines[2]["event"], &lines[2]["name"], &lines[2]["from"]], ["network_tunnel", "t", "a"]);
    let count = |key: &str| near[key].as_f64().unwrap();
    let arrived = far["received_packets"].as_u64().unwrap();
    assert!(arrived > 1_000 && count("repair") / count("source") > 0.2, "{near} {far}");
    tidewire().arg("sim").arg(&scenario).assert().success().stdout(contains("t at b"));
    fs::write(&scenario, text.replace("to = \"b\"", "to = \"c\"")).unwrap();
    tidewire().arg("sim").arg(&scenario).assert().code(2).stderr(contains("net.toml:17: link.to: there is no node"));
    fs::write(&scenario, text.replace("cubic", "bbr")).unwrap();
    tidewire().arg("sim").arg(&scenario).assert().code(2).stderr(contains("the simulator has no BBR"));
}
