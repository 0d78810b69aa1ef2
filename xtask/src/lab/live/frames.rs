//! Decoded video: frames of `tidewire live`, SRT and UDP compared with those of the source.
//!
//! This is a part of `cargo xtask lab`. `ffmpeg` makes a transport stream of constant rate. All carriers
//! carry it at once, each over a link of its own, and `ffmpeg` decodes what came. A frame is lost if its time
//! is not among the decoded ones, and damaged if its picture differs in any bit. Invariant: all carriers have
//! the same stream, loss and seed.

use super::carrier::Carrier;
use super::stream::{DATAGRAM, Player, send};
use super::{Measured, carry};
use crate::context::{self, Context};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Encoders of `ffmpeg`, and what they are called.
const CODECS: [(&str, &str); 2] = [("libx264", "H.264"), ("libx265", "H.265")];
/// Rate of the transport stream in bits per second, and of its video.
const RATE: u32 = 4_000_000;
const VIDEO: &str = "3M";
/// The link's loss, and the latency beyond its one-way time.
const LOSS: &str = "5%";
const BUDGET_MS: u64 = 80;
/// Lengths of the video in seconds: usual and full.
const SECONDS: [u32; 2] = [120, 600];

/// A decoded frame by its time: a sum over its picture.
type Frames = BTreeMap<String, String>;

/// Measures both codecs. The goal: nothing lost and nothing damaged by ours.
pub fn measure(context: &Context, binary: &Path, full: bool) -> Measured {
    let folder = context.target.join("lab-live");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let seconds = SECONDS[usize::from(full)];
    let mut text = format!(
        "640 x 360, 25 frames a second, {seconds} s, {VIDEO}bit/s in a stream of 4 Mbit/s; 25 Mbit/s, 60 ms, loss {LOSS}; one way + {BUDGET_MS} ms.\n\n\
         | codec | carrier | frames | lost | damaged | SSIM | sent/app |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    );
    let mut holds = true;
    for (encoder, codec) in CODECS {
        let source = folder.join(format!("{encoder}.ts"));
        encode(encoder, seconds, &source)?;
        let wanted = decode(&source)?;
        let stream = std::fs::read(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        let carriers = [Carrier::Tidewire(BUDGET_MS), Carrier::Srt(BUDGET_MS, false), Carrier::Udp];
        let costs: Vec<Result<f64, String>> = thread::scope(|scope| {
            let threads: Vec<_> = (carriers.iter().enumerate())
                .map(|(n, carrier)| (carrier, folder.join(format!("{encoder}-{n}.ts"))))
                .map(|(carrier, out)| scope.spawn(|| play(binary, *carrier, &stream, out)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a run panicked".into()))).collect()
        });
        for (n, (carrier, cost)) in carriers.iter().zip(costs).enumerate() {
            let cost = cost?;
            let out = folder.join(format!("{encoder}-{n}.ts"));
            let (lost, damaged) = compare(&wanted, &decode(&out)?);
            let similar = similarity(&out, &source)?;
            text += &format!(
                "| {codec} | {} | {} | {lost} | {damaged} | {similar:.4} | {cost:.3} |\n",
                carrier.name(),
                wanted.len()
            );
            holds &= n > 0 || lost + damaged == 0;
        }
    }
    Ok((text, holds))
}

/// Carries the stream, writes what came to `out`, and returns bytes sent per byte of the stream.
fn play(binary: &Path, carrier: Carrier, stream: &[u8], out: std::path::PathBuf) -> Result<f64, String> {
    let player = Player::of_bytes()?;
    let interval = Duration::from_secs_f64((8 * DATAGRAM) as f64 / f64::from(RATE));
    let carried =
        carry(binary, LOSS, carrier, 1, player.address(), |entry| send(entry, stream.chunks(DATAGRAM), interval))?;
    std::fs::write(&out, player.finish()).map_err(|e| format!("{}: {e}", out.display()))?;
    Ok(carried.payload / stream.len() as f64)
}

/// Makes a moving test picture with noise, a key frame each two seconds.
fn encode(encoder: &str, seconds: u32, to: &Path) -> Result<(), String> {
    let picture = format!("testsrc2=size=640x360:rate=25:duration={seconds},noise=alls=6:allf=t");
    let mut ffmpeg =
        ffmpeg(&["-f", "lavfi", "-i", &picture, "-c:v", encoder, "-preset", "ultrafast", "-tune", "zerolatency"]);
    ffmpeg.args(["-g", "50", "-b:v", VIDEO, "-maxrate", VIDEO, "-bufsize", "1M", "-pix_fmt", "yuv420p"]);
    ffmpeg.args(["-muxrate", &RATE.to_string(), "-f", "mpegts", "-y"]).arg(to);
    context::run(&mut ffmpeg)
}

/// The frames that a decoder finds.
fn decode(file: &Path) -> Result<Frames, String> {
    let mut ffmpeg = ffmpeg(&["-copyts", "-i"]);
    ffmpeg.arg(file).args(["-an", "-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    let output = ffmpeg.output().map_err(|e| format!("ffmpeg: {e}"))?;
    if !output.status.success() {
        return Err(format!("ffmpeg cannot decode {}: {}", file.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(frames(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines `stream, dts, pts, duration, size, sum`.
fn frames(text: &str) -> Frames {
    let frame = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [_, _, pts, _, _, sum] = fields[..] else { return None };
        Some((pts.to_owned(), sum.to_owned()))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(frame).collect()
}

/// Frames that are lost, and those that differ.
fn compare(wanted: &Frames, got: &Frames) -> (usize, usize) {
    let lost = wanted.keys().filter(|pts| !got.contains_key(*pts)).count();
    let differs = |(pts, sum): &(&String, &String)| got.get(*pts).is_some_and(|got| got != *sum);
    (lost, wanted.iter().filter(differs).count())
}

/// The mean structural similarity. In place of a lost frame stands the one before it.
fn similarity(file: &Path, source: &Path) -> Result<f64, String> {
    let mut ffmpeg = ffmpeg(&["-copyts", "-i"]);
    ffmpeg.arg(source).args(["-copyts", "-i"]).arg(file);
    ffmpeg.args(["-lavfi", "[0:v][1:v]ssim", "-an", "-f", "null", "-"]);
    let output = ffmpeg.output().map_err(|e| format!("ffmpeg: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let all = text.rsplit_once("All:").and_then(|(_, rest)| rest.split_whitespace().next());
    all.and_then(|all| all.parse().ok()).ok_or_else(|| format!("ffmpeg found no similarity: {text}"))
}

fn ffmpeg(arguments: &[&str]) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "info", "-nostats"]).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_by_their_times() {
        let line = |pts: &str, sum: &str| format!("0, {pts}, {pts}, 3600, 345600, {sum}\n");
        let wanted =
            frames(&format!("#format: frame checksums\n{}{}{}", line("0", "a"), line("3600", "b"), line("7200", "c")));
        let got = frames(&format!("{}{}", line("0", "a"), line("7200", "x")));
        assert_eq!((wanted.len(), compare(&wanted, &got), compare(&wanted, &wanted)), (3, (1, 1), (0, 0)));
    }
}
