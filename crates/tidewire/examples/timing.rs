//! Measures over loopback how exactly packet trains leave and how exactly arrivals are known.
//!
//! `cargo run --release -p tidewire --example timing -- records SECONDS [busy-near] [busy-far]` sends
//! 500 bytes every 3 ms and prints the samples of the round trip. A busy end has a task that computes for
//! 5 ms and then sleeps for 5 ms.
//!
//! `... -- trains SECONDS MEGABITS [busy-near] [busy-far]` sends packet trains at this mean rate, each at
//! twice the rate. It prints the pace at which they left, and the span over which a train arrived divided by
//! the span over which it left. `... -- even SECONDS MEGABITS` sends as much at an even pace, and
//! `... -- control SECONDS` as much as the rate control `train` allows.
//!
//! With `via=ADDRESS` the connection goes to that address and the other end listens at 127.0.0.1:7701, so a
//! link of `tidewire-lab link` can lie between the two.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tidewire::rate::{AckSample, Budget, RateController, TrainPace, TrainSample};
use tidewire::{Config, Custom, Endpoint, RateControl, Secret, new_secret};
use tidewire_figures::{ascending, quantile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the sender's controller saw: round trips in microseconds, the pace of trains over the wanted one, the
/// arrival of trains over their departure, and the rates in Mbit/s at which they arrived.
#[derive(Debug, Default)]
struct Seen {
    round_trips: Vec<f64>,
    paces: Vec<f64>,
    spans: Vec<f64>,
    rates: Vec<f64>,
}

static SEEN: Mutex<Seen> =
    Mutex::new(Seen { round_trips: Vec::new(), paces: Vec::new(), spans: Vec::new(), rates: Vec::new() });

/// Sends at a fixed rate in bytes per second, in trains or evenly.
#[derive(Debug)]
struct Watch {
    rate: u64,
    trains: bool,
}

impl Watch {
    /// Packets of a train of 4 ms, as the controller `train` makes them.
    fn packets(&self) -> u16 {
        (self.rate / 250 / 1_500).clamp(16, 100) as u16 + 1
    }
}

impl RateController for Watch {
    fn on_ack(&mut self, ack: &AckSample) {
        SEEN.lock().unwrap().round_trips.extend(ack.rtt.map(|rtt| rtt.as_secs_f64() * 1e6));
    }

    fn on_train(&mut self, train: &TrainSample) {
        // A train that was cut short says little.
        if train.bytes < u64::from(self.packets() / 2) * 1_400 {
            return;
        }
        let mut seen = SEEN.lock().unwrap();
        let (left, arrived) = (train.left.as_secs_f64(), train.arrived.as_secs_f64());
        seen.paces.push(train.bytes as f64 / left / (self.rate * 2) as f64);
        seen.spans.push(arrived / left);
        seen.rates.push(train.bytes as f64 * 8e-6 / arrived);
    }

    fn budget(&self) -> Budget {
        Budget { window: 4 << 20, pacing: self.rate }
    }

    fn train(&self) -> Option<TrainPace> {
        self.trains.then(|| TrainPace { packets: self.packets(), rate: self.rate * 2 })
    }
}

fn controller(rate: f64, trains: bool) -> Box<dyn RateController> {
    Box::new(Watch { rate: (rate * 125_000.0) as u64, trains })
}

/// Computes for 5 ms, sleeps for 5 ms, and so on.
async fn be_busy() {
    loop {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn print(name: &str, values: Vec<f64>) {
    let values = ascending(values);
    let at = |part| quantile(&values, part);
    let (Some(p10), Some(p50), Some(p90), Some(p99)) = (at(0.1), at(0.5), at(0.9), at(0.99)) else { return };
    println!("{name}: {} samples; p10 {p10:.2}, p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}", values.len());
}

fn far(secret: Secret, address: SocketAddr, busy: bool, ready: std::sync::mpsc::Sender<SocketAddr>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = Endpoint::bind(address, secret, Config::default()).expect("binds");
        ready.send(server.local_addr()).expect("waits");
        if busy {
            tokio::spawn(be_busy());
        }
        let connection = server.accept().await.expect("a connection");
        let mut stream = connection.accept().await.expect("a stream");
        let mut buffer = vec![0; 1 << 16];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let mode = arguments.first().map_or("records", String::as_str);
    let seconds: u64 = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    let megabits: f64 = match mode {
        "records" | "control" => 1_000.0,
        _ => arguments.get(2).ok_or("which rate?")?.parse()?,
    };
    let via = arguments.iter().find_map(|argument| argument.strip_prefix("via="));
    let build = if mode == "trains" { |rate| controller(rate, true) } else { |rate| controller(rate, false) };
    let watch = Custom { name: "watch", build, parameter: megabits };
    let rate_control = if mode == "control" { "train".parse()? } else { RateControl::Custom(watch) };
    let config = Config::builder().rate_control(rate_control).build()?;

    let secret = new_secret()?;
    let (theirs, busy_far) = (secret.clone(), has("busy-far"));
    let (ready, address) = std::sync::mpsc::channel();
    let listen = if via.is_some() { "127.0.0.1:7701" } else { "127.0.0.1:0" }.parse()?;
    thread::spawn(move || far(theirs, listen, busy_far, ready));
    let address = address.recv()?;
    let address = via.map_or(Ok(address), str::parse)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Endpoint::bind("127.0.0.1:0".parse()?, secret, config)?;
        if has("busy-near") {
            tokio::spawn(be_busy());
        }
        let connection = client.connect(address).await?;
        let mut stream = connection.open().await?;
        let (start, buffer) = (Instant::now(), vec![7; 1 << 16]);
        while start.elapsed().as_secs() < seconds {
            if mode == "records" {
                stream.write_all(&buffer[..500]).await?;
                tokio::time::sleep(Duration::from_millis(3)).await;
            } else {
                stream.write_all(&buffer).await?;
            }
        }
        let least = connection.stats().rtt.least;
        println!(
            "{:.1} Mbit/s sent, least round trip {least:?}",
            connection.stats().bytes.wire_sent as f64 * 8e-6 / start.elapsed().as_secs_f64()
        );
        Ok::<_, Box<dyn Error>>(())
    })?;
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    print("round trip in us", seen.round_trips);
    print("pace of trains over the wanted one", seen.paces);
    print("arrival span over departure span", seen.spans);
    print("train rate in Mbit/s", seen.rates);
    Ok(())
}
