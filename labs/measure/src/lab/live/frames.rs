//! Decoded video: frames of `tidewire live`, SRT and UDP compared with those of the source.
//!
//! This is a part of `cargo measure lab`. `ffmpeg` makes a transport stream of constant rate. All carriers
//! carry it at once, each over a link of its own, and `ffmpeg` decodes what came. A frame is lost if its time
//! is not among the decoded ones, and damaged if its picture differs in any bit. Invariant: all carriers have
//! the same stream, loss and seed.

use super::carrier::Carrier;
use super::stream::{DATAGRAM, PACKET, Player, send};
use super::{Measured, carry};
use crate::context::{self, Context};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A video and its way.
struct Trial {
    /// The part of the lab, which has a folder of its own.
    part: &'static str,
    /// The encoder of `ffmpeg`, and what it is called.
    encoder: &'static str,
    codec: &'static str,
    seconds: u32,
    /// Rate of the transport stream and of its video, in Mbit/s.
    stream: u32,
    video: u32,
    /// The link's loss.
    loss: &'static str,
    seed: u32,
}

/// What came of a video.
struct Outcome {
    frames: usize,
    lost: usize,
    damaged: usize,
    /// Packets of the transport stream, and those of them that never came.
    packets: usize,
    missing: usize,
    similar: f64,
    /// Bytes sent per byte of the stream.
    sent: f64,
}

/// A decoded frame by its time: a sum over its picture.
type Frames = BTreeMap<String, String>;

/// The latency beyond the link's one-way time.
const BUDGET_MS: u64 = 80;
/// Columns of each table, behind those that it has of its own.
const HEAD: &str = "frames | lost | damaged | SSIM | TS packets | missing | sent/app |\n";
const LINE: &str = "--- | --- | --- | --- | --- | --- | --- |\n";
/// The latency with which no answer is in time, and a cap that is too low for the link's loss.
const SHORT_MS: u64 = 20;
const CAPPED: &[&str] = &["--max-overhead", "15%"];
const PROTECTED: &[&str] = &["--max-overhead", "15%", "--protect-key-frames"];
/// What a video of ten minutes asks for: less than one datagram in a million late.
const STRICT: &[&str] = &["--deliver", "99.9999%"];

/// Two minutes of each codec. The goal: nothing lost and nothing damaged by ours.
pub fn frames(context: &Context, binary: &Path, _: bool) -> Measured {
    let mut text = format!(
        "640 x 360, 25 frames a second, 120 s, 3 Mbit/s in a stream of 4 Mbit/s; 25 Mbit/s, 60 ms, loss 5%; one way + {BUDGET_MS} ms.\n\n\
         | codec | carrier | {HEAD}| --- | --- | {LINE}"
    );
    let carriers = [Carrier::Tidewire(BUDGET_MS, &[]), Carrier::Srt(BUDGET_MS, false), Carrier::Udp];
    let mut holds = true;
    for (encoder, codec) in [("libx264", "H.264"), ("libx265", "H.265")] {
        let trial = Trial { part: "frames", encoder, codec, seconds: 120, stream: 4, video: 3, loss: "5%", seed: 1 };
        let outcomes = trial.run(context, binary, &carriers)?;
        holds &= outcomes.first().is_some_and(Outcome::is_whole);
        text.extend(
            carriers
                .iter()
                .zip(&outcomes)
                .map(|(carrier, outcome)| format!("| {codec} | {} | {}", carrier.name(), outcome.row())),
        );
    }
    Ok((text, holds))
}

/// Ten minutes at 6 Mbit/s in the full run, else one. The goal: with a strict target, nothing is missing.
pub fn long(context: &Context, binary: &Path, full: bool) -> Measured {
    let seconds = if full { 600 } else { 60 };
    let (encoder, codec) = ("libx264", "H.264");
    let trial = Trial { part: "long", encoder, codec, seconds, stream: 6, video: 5, loss: "5%", seed: 1 };
    let strict = Carrier::Tidewire(BUDGET_MS, STRICT);
    let carriers = [strict, Carrier::Tidewire(BUDGET_MS, &[]), Carrier::Srt(BUDGET_MS, false), Carrier::Udp];
    let outcomes = trial.run(context, binary, &carriers)?;
    let mut text = format!(
        "H.264, 640 x 360, 25 frames a second, {seconds} s, 5 Mbit/s in a stream of 6 Mbit/s; 25 Mbit/s, 60 ms, loss 5%; one way + {BUDGET_MS} ms.\n\n\
         | carrier | {HEAD}| --- | {LINE}"
    );
    let rows = carriers.iter().zip(&outcomes);
    text.extend(rows.map(|(carrier, outcome)| format!("| {} | {}", carrier.name(), outcome.row())));
    Ok((text, outcomes.first().is_some_and(|outcome| outcome.missing == 0)))
}

/// A budget that is too small, with key frames protected and without. The goal: fewer damaged frames with
/// each seed, at no more bytes.
pub fn keys(context: &Context, binary: &Path, full: bool) -> Measured {
    let carriers = [Carrier::Tidewire(SHORT_MS, CAPPED), Carrier::Tidewire(SHORT_MS, PROTECTED)];
    let mut text = format!(
        "640 x 360, 25 frames a second, 60 s, 3 Mbit/s in a stream of 4 Mbit/s; 25 Mbit/s, 60 ms, loss 10%; one way + {SHORT_MS} ms.\n\n\
         | codec | seed | carrier | {HEAD}| --- | --- | --- | {LINE}"
    );
    let codecs = [("libx264", "H.264"), ("libx265", "H.265")];
    let mut holds = true;
    for (encoder, codec) in codecs.into_iter().take(if full { 2 } else { 1 }) {
        for seed in 1..=3 {
            let trial = Trial { part: "keys", encoder, codec, seconds: 60, stream: 4, video: 3, loss: "10%", seed };
            let outcomes = trial.run(context, binary, &carriers)?;
            let rows = carriers.iter().zip(&outcomes);
            text.extend(
                rows.map(|(carrier, outcome)| format!("| {codec} | {seed} | {} | {}", carrier.name(), outcome.row())),
            );
            let [without, with] = &outcomes[..] else { return Err("a carrier has no outcome".into()) };
            let bad = |outcome: &Outcome| outcome.lost + outcome.damaged;
            holds &= bad(with) < bad(without) && with.sent <= without.sent + 0.01;
        }
    }
    Ok((text, holds))
}

impl Trial {
    /// Makes the video, carries it by all carriers at once, and decodes what came.
    fn run(&self, context: &Context, binary: &Path, carriers: &[Carrier]) -> Result<Vec<Outcome>, String> {
        let folder = context.target.join("lab-live").join(self.part);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let source = folder.join(format!("{}.ts", self.encoder));
        self.encode(&source)?;
        let wanted = decode(&source)?;
        let stream = std::fs::read(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        let outs: Vec<_> = (0..carriers.len()).map(|n| folder.join(format!("{}-{n}.ts", self.encoder))).collect();
        let costs: Vec<Result<f64, String>> = thread::scope(|scope| {
            let threads: Vec<_> = (carriers.iter().zip(&outs))
                .map(|(carrier, out)| scope.spawn(|| self.play(binary, *carrier, &stream, out)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a run panicked".into()))).collect()
        });
        let mut outcomes = Vec::new();
        for (out, sent) in outs.iter().zip(costs) {
            let sent = sent?;
            let (lost, damaged) = compare(&wanted, &decode(out)?);
            let came = std::fs::metadata(out).map_err(|e| format!("{}: {e}", out.display()))?.len();
            let packets = stream.len() / PACKET;
            let missing = packets.saturating_sub(came as usize / PACKET);
            let similar = similarity(out, &source)?;
            outcomes.push(Outcome { frames: wanted.len(), lost, damaged, packets, missing, similar, sent });
        }
        Ok(outcomes)
    }

    /// Carries the stream, writes what came to `out`, and returns bytes sent per byte of the stream.
    fn play(&self, binary: &Path, carrier: Carrier, stream: &[u8], out: &Path) -> Result<f64, String> {
        let player = Player::of_bytes()?;
        let interval = Duration::from_secs_f64((8 * DATAGRAM) as f64 / (1e6 * f64::from(self.stream)));
        let source = |entry| send(entry, stream.chunks(DATAGRAM), interval);
        let carried = carry(binary, self.loss, carrier, self.seed, player.address(), source);
        let carried = carried.map_err(|problem| format!("{} and {}: {problem}", self.codec, carrier.name()))?;
        std::fs::write(out, player.finish()).map_err(|e| format!("{}: {e}", out.display()))?;
        Ok(carried.payload / stream.len() as f64)
    }

    /// Makes a moving test picture with noise, a key frame each two seconds.
    fn encode(&self, to: &Path) -> Result<(), String> {
        let picture = format!("testsrc2=size=640x360:rate=25:duration={},noise=alls=6:allf=t", self.seconds);
        let mut ffmpeg = ffmpeg(&["-f", "lavfi", "-i", &picture, "-c:v", self.encoder, "-preset", "ultrafast"]);
        let video = format!("{}M", self.video);
        ffmpeg.args(["-tune", "zerolatency", "-g", "50", "-b:v", &video, "-maxrate", &video, "-bufsize", "1M"]);
        ffmpeg.args(["-pix_fmt", "yuv420p", "-muxrate", &format!("{}M", self.stream), "-f", "mpegts", "-y"]).arg(to);
        context::run(&mut ffmpeg)
    }
}

impl Outcome {
    fn is_whole(&self) -> bool {
        self.lost + self.damaged == 0
    }

    /// The columns of [`HEAD`].
    fn row(&self) -> String {
        let Self { frames, lost, damaged, packets, missing, similar, sent } = self;
        format!("{frames} | {lost} | {damaged} | {similar:.4} | {packets} | {missing} | {sent:.3} |\n")
    }
}

/// The frames that a decoder finds.
fn decode(file: &Path) -> Result<Frames, String> {
    let mut ffmpeg = ffmpeg(&["-copyts", "-i"]);
    ffmpeg.arg(file).args(["-an", "-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    let output = ffmpeg.output().map_err(|e| format!("ffmpeg: {e}"))?;
    if !output.status.success() {
        return Err(format!("ffmpeg cannot decode {}: {}", file.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines `stream, dts, pts, duration, size, sum`.
fn listed(text: &str) -> Frames {
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

/// `ffmpeg`, which gives way to the carriers of another run.
fn ffmpeg(arguments: &[&str]) -> Command {
    let mut command = Command::new("nice");
    command
        .args(["-n", "20", "ffmpeg"])
        .args(["-nostdin", "-hide_banner", "-loglevel", "info", "-nostats"])
        .args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_by_their_times() {
        let line = |pts: &str, sum: &str| format!("0, {pts}, {pts}, 3600, 345600, {sum}\n");
        let wanted =
            listed(&format!("#format: frame checksums\n{}{}{}", line("0", "a"), line("3600", "b"), line("7200", "c")));
        let got = listed(&format!("{}{}", line("0", "a"), line("7200", "x")));
        assert_eq!((wanted.len(), compare(&wanted, &got), compare(&wanted, &wanted)), (3, (1, 1), (0, 0)));
    }
}
