//! Types keys at a terminal whose program echoes them from the far host, and notes when each comes back.
//!
//! The keys are letters that terminal control sequences do not use, in a fixed order, so an echo is found
//! among what mosh draws. All fit in one line, so nothing is drawn twice. Invariant: a key is typed at its
//! planned time, whether or not the earlier ones came back.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What the far program prints when it begins to echo.
pub const READY: &str = "READY";
/// The keys, in turn. Control sequences that mosh sends end in other letters.
const KEYS: [u8; 5] = *b"qwvzx";
/// Time between two keys: the mean of a fast typist, from 150 to 250 ms.
const LEAST_GAP: Duration = Duration::from_millis(150);
const SPREAD_MS: u64 = 100;
/// Longest wait for the terminal, and for the last echo. Chosen: longer than ssh takes at 10 % loss.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a session.
pub struct Typed {
    /// From the start of the command until the far program echoes.
    pub start: Duration,
    /// From each key to its echo.
    pub delays: Vec<Duration>,
}

/// Runs `command` at a terminal and types `keys` keys.
pub fn typed(command: &mut Command, keys: usize) -> anyhow::Result<Typed> {
    let begun = Instant::now();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?.into_string()?;
    let slave = OpenOptions::new().read(true).write(true).custom_flags(OFlags::NOCTTY.bits() as i32).open(name)?;
    let columns = u16::try_from(keys + 100)?;
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    command.stdin(Stdio::from(slave.try_clone()?)).stdout(Stdio::from(slave.try_clone()?)).stderr(Stdio::from(slave));
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    // The command holds the terminal open for the children too.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut master = File::from(master);
    let screen = read_screen(master.try_clone()?);
    let session = session(&mut master, &screen, begun, keys);
    let _ = child.kill();
    let _ = child.wait();
    session
}

/// Bytes of the terminal, and when they were read.
type Screen = Receiver<(Instant, Vec<u8>)>;

fn read_screen(mut master: File) -> Screen {
    let (sender, screen) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // Reading fails when the last program has left the terminal.
        while let Ok(length) = master.read(&mut buffer) {
            let at = Instant::now();
            if length == 0 || sender.send((at, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    screen
}

fn session(master: &mut File, screen: &Screen, begun: Instant, keys: usize) -> anyhow::Result<Typed> {
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(READY) {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        let Ok((_, bytes)) = screen.recv_timeout(left) else {
            bail!("the far program does not answer: {}", String::from_utf8_lossy(&shown).escape_debug());
        };
        shown.extend(bytes);
    }
    let start = begun.elapsed();
    let gap = |key: usize| LEAST_GAP + Duration::from_millis(key as u64 * 37 % SPREAD_MS);
    let (mut at, mut typed, mut delays) = (Instant::now() + gap(0), Vec::new(), Vec::new());
    while delays.len() < keys {
        let wait = if typed.len() < keys { at.saturating_duration_since(Instant::now()) } else { PATIENCE };
        match screen.recv_timeout(wait) {
            Ok((read, bytes)) => {
                for byte in bytes {
                    let expected = delays.len();
                    if KEYS[expected % KEYS.len()] == byte
                        && let Some(key) = typed.get(expected)
                    {
                        delays.push(read.saturating_duration_since(*key));
                    }
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) if typed.len() < keys => {
                master.write_all(&[KEYS[typed.len() % KEYS.len()]])?;
                typed.push(Instant::now());
                at += gap(typed.len());
            }
            Err(_) => bail!("{} of {keys} keys came back", delays.len()),
        }
    }
    Ok(Typed { start, delays })
}
