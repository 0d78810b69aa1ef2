//! Compares the echo over the C API with the same echo over the Rust API, in turns and in the same run.
//!
//! `cargo run --release -p tidewire-capi --example throughput -- [MEGABYTES] [ROUNDS]`
//!
//! Each round runs `examples/echo.c`, compiled with `cc -O2` against the static library, as a server and a
//! client, and then this program as the same pair: the same chunks, the same check of every byte, one task
//! that sends and one that receives. It prints the rates of each round, the medians and their ratio.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tidewire::link::{Link, Peer};
use tidewire::{CloseCode, Config, Endpoint, new_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const CHUNK: usize = 65_536;
/// As in echo.c.
const PERIOD: usize = 65_521;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = || Builder::new_multi_thread().enable_all().build();
    match words[..] {
        ["server"] => runtime()?.block_on(serve()),
        ["client", link, megabytes] => runtime()?.block_on(run_client(link, megabytes.parse::<u64>()? * 1_000_000)),
        _ => {
            let number = |index: usize, default| words.get(index).map_or(Ok(default), |word| word.parse());
            compare(number(0, 200)?, number(1, 5)?)
        }
    }
}

/// Runs both pairs in turns.
fn compare(megabytes: usize, rounds: usize) -> Outcome<()> {
    let own = std::env::current_exe()?;
    let echo = compile(&own)?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 1..=rounds {
        for (program, rates) in [&echo, &own].into_iter().zip(&mut rates) {
            rates.push(measure(program, megabytes)?);
        }
        println!("round {round}: C {:.0} Mbit/s, Rust {:.0} Mbit/s", rates[0][round - 1], rates[1][round - 1]);
    }
    let [c, rust] = rates.map(tidewire_figures::median);
    println!("median: C {c:.0} Mbit/s, Rust {rust:.0} Mbit/s, ratio {:.3}", c / rust);
    Ok(())
}

/// Compiles echo.c against the library that cargo built beside this example.
fn compile(own: &Path) -> Outcome<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let profile = own.ancestors().nth(2).ok_or("this example does not lie in a target folder")?;
    let library = [profile.join("deps/libtidewire_capi.a"), profile.join("libtidewire_capi.a")];
    let library = library.iter().find(|library| library.exists()).ok_or("the static library was not built")?;
    let program = own.with_file_name("echo-c");
    let status = Command::new("cc")
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-I"])
        .arg(root.join("include"))
        .arg(root.join("examples/echo.c"))
        .arg(library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .status()?;
    if status.success() { Ok(program) } else { Err("cc failed".into()) }
}

/// The rate that a client of `program` prints, in Mbit/s.
fn measure(program: &Path, megabytes: usize) -> Outcome<f64> {
    let mut server = Command::new(program).arg("server").stdout(Stdio::piped()).spawn()?;
    let mut link = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut link)?;
    let client = Command::new(program).args(["client", link.trim(), &megabytes.to_string()]).output()?;
    if !client.status.success() || !server.wait()?.success() {
        return Err(String::from_utf8_lossy(&client.stderr).into());
    }
    let said = String::from_utf8(client.stdout)?;
    let rate = said.split(", ").nth(1).and_then(|rate| rate.split(' ').next()).ok_or("no rate")?;
    Ok(rate.parse()?)
}

async fn serve() -> Outcome<()> {
    let secret = new_secret()?;
    let endpoint = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default())?;
    let port = endpoint.local_addr().port();
    let peer = Peer::Secret(secret);
    println!("{}", Link { host: "127.0.0.1".into(), port, query: Vec::new(), peer }.reveal());
    let connection = endpoint.accept().await?;
    let mut stream = connection.accept().await?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            n => stream.write_all(&buffer[..n]).await?,
        }
    }
    stream.shutdown().await?;
    connection.closed().await;
    Ok(())
}

async fn run_client(link: &str, bytes: u64) -> Outcome<()> {
    let link: Link = link.parse()?;
    let Peer::Secret(secret) = link.peer.clone() else { return Err("a link with a secret is needed".into()) };
    let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, secret, Config::default())?;
    let connection = endpoint.connect(link.resolve().await?[0]).await?;
    let (mut reader, mut writer) = connection.open().await?.split();
    let pattern = pattern();
    let sent = pattern.clone();
    let start = Instant::now();
    let sender = tokio::spawn(async move {
        let mut offset = 0;
        while offset < bytes {
            let at = (offset % PERIOD as u64) as usize;
            let wanted = (bytes - offset).min(CHUNK as u64) as usize;
            writer.write_all(&sent[at..at + wanted]).await?;
            offset += wanted as u64;
        }
        writer.shutdown().await
    });
    let (mut buffer, mut received) = (vec![0; CHUNK], 0u64);
    loop {
        let n = reader.read(&mut buffer).await?;
        if n == 0 {
            break;
        }
        let at = (received % PERIOD as u64) as usize;
        if buffer[..n] != pattern[at..at + n] {
            return Err("bytes came back changed".into());
        }
        received += n as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    sender.await??;
    if received != bytes {
        return Err(format!("{received} of {bytes} bytes came back").into());
    }
    println!("{bytes} bytes came back, {:.0} Mbit/s", bytes as f64 * 8e-6 / seconds);
    connection.close(CloseCode::Done, "");
    connection.closed().await;
    Ok(())
}

/// The bytes that echo.c sends.
fn pattern() -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let period: Vec<u8> = std::iter::repeat_with(next).take(PERIOD).collect();
    (0..PERIOD + CHUNK).map(|i| period[i % PERIOD]).collect()
}
