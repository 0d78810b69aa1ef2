//! Compares the simulator's TCP with the kernel's: the same link, the same loss rates, goodput side by side.
//!
//! `cargo measure lab tcp` runs it as root and keeps its table in `docs/lab.md`. Arguments: seconds of a run,
//! how many seeds, and the congestion control (`reno` or `cubic`). A ratio outside of 0.9 to 1.1 is marked,
//! and then the exit code is 8.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidewire_lab::peer::Table;
use tidewire_lab::trial::{Traffic, Trial};
use tidewire_proto::Time;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::scenario::Scenario;
use tidewire_sim::tcp::{Ack, Control, Cubic, Packet, Receiver, Reno, Sender, SenderConfig, Source, TcpPair};

/// Loss rates in percent.
const LOSSES: [&str; 3] = ["0.1", "1", "3"];
/// What a goodput may differ by, relative to the kernel's: asked of the model.
const BOUNDS: [f64; 2] = [0.9, 1.1];
/// Goodput counts from the third second on, as the lab's does.
const START: Duration = Duration::from_secs(3);
/// Packets of the near host before the first data.
const HANDSHAKE: usize = 2;
/// Simulated runs for one of the kernel's. They cost little, and their mean is closer to the model's.
const RUNS_EACH: u64 = 10;

fn main() -> anyhow::Result<ExitCode> {
    let number = |index: usize, default| std::env::args().nth(index).map_or(Ok(default), |text| text.parse());
    let (seconds, seeds) = (number(1, 30_u64)?, number(2, 5_u64)?);
    let control = std::env::args().nth(3).unwrap_or_else(|| "reno".into());
    let time = Duration::from_secs(seconds);
    println!("| control | loss | kernel Mbit/s, each seed | mean | simulator, mean and deviation | ratio | |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut holds = true;
    for loss in LOSSES {
        let kernel: Vec<f64> =
            (1..=seeds).map(|seed| kernel(&link(loss, seed)?, &control, time)).collect::<Result<_, _>>()?;
        let simulated: Vec<f64> = (1..=seeds * RUNS_EACH)
            .map(|seed| Ok(simulated(&link(loss, seed)?, &control, time)))
            .collect::<anyhow::Result<_>>()?;
        let ratio = mean(&simulated) / mean(&kernel);
        let held = (BOUNDS[0]..=BOUNDS[1]).contains(&ratio);
        holds &= held;
        let each: Vec<String> = kernel.iter().map(|goodput| format!("{:.2}", goodput / 1e6)).collect();
        println!(
            "| {control} | {loss} % | {} | {:.2} | {:.2}, {:.2} | {ratio:.3} | {} |",
            each.join(" "),
            mean(&kernel) / 1e6,
            mean(&simulated) / 1e6,
            deviation(&simulated) / 1e6,
            if held { "ok" } else { "OFF" },
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(8) })
}

/// 10 Mbit/s, 40 ms, and a queue of one round trip.
fn link(loss: &str, seed: u64) -> anyhow::Result<DuplexConfig> {
    let text = format!(
        "seed = {seed}\n[link]\nrate = \"10mbit\"\nrtt = \"40ms\"\nqueue = \"40ms\"\n[forward]\nloss = \"{loss}%\"\n"
    );
    Ok(Scenario::parse(&text, Path::new("newreno.toml"))?.link)
}

/// Bits per second of the kernel's TCP without SACK.
fn kernel(link: &DuplexConfig, control: &str, time: Duration) -> anyhow::Result<f64> {
    let table = Table::read(None)?;
    let trial = Trial {
        link: link.clone(),
        program: Path::new("tidewire"),
        peer: table.named(&format!("tcp-{control}-nosack"))?,
        load: Traffic::Full,
        record: None,
        time,
    };
    let measured = trial.run()?;
    anyhow::ensure!(measured.unread == 0, "the emulator did not read {} packets in time", measured.unread);
    eprintln!("{:.2} Mbit/s, emulator {:.2?} ms late at p99", measured.goodput_bps / 1e6, measured.late.quantile(0.99));
    Ok(measured.goodput_bps)
}

/// Bits per second of the simulator's.
fn simulated(link: &DuplexConfig, control: &str, time: Duration) -> f64 {
    let config = SenderConfig { handshake: Some(link.rtt()), ..SenderConfig::default() };
    let receiver = Receiver::default();
    let control: Box<dyn Control> = if control == "cubic" { Box::<Cubic>::default() } else { Box::new(Reno) };
    let sender = Sender::with_control(config, Source::Bulk, receiver.window(), Time::ZERO, control);
    let mut flow = TcpPair::with(sender, receiver, link);
    // The kernel's SYN and the ACK that ends the handshake: behind them both lose the same packets.
    for _ in 0..HANDSHAKE {
        let ack = Ack { next: 0, window: 0, echo: Time::ZERO, echoes_mark: false };
        flow.link_mut().forward.send(Time::ZERO, 0, Packet::Ack(ack));
    }
    flow.until(Time::ZERO + START);
    let before = flow.receiver().delivered();
    flow.until(Time::ZERO + time);
    let after = flow.outcome().receiver.bytes;
    8.0 * (after - before) as f64 / (time - START).as_secs_f64()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1).max(1) as f64).sqrt()
}
