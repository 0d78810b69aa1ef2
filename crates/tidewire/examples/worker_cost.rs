//! How many products a second a pool of workers makes with one thread, with two, and with none. Also the time
//! that it takes to hand a small job to a worker and to get its result, which `Config::inline_products`
//! weighs against the work itself.
//!
//! The jobs are those of a lane in generations, taken from an endpoint that sends. The pool is the driver's,
//! compiled with a `shared` that only counts results. Run it on an idle machine with two cores:
//!
//! ```text
//! cargo run --release -p tidewire --example worker_cost -- [K R [CODE]]
//! ```
//!
//! Blocks have K source symbols and R repair symbols, 256 and 64 unless given, of CODE, which is that of the
//! profile `block` unless given.

#[path = "../src/workers.rs"]
mod workers;

/// The module to which the pool hands its results.
mod shared {
    use std::sync::{Condvar, Mutex};

    use tidewire_proto::connection::JobDone;
    use tidewire_proto::endpoint::ConnectionHandle;

    #[derive(Default)]
    pub(crate) struct Shared {
        done: Mutex<usize>,
        more: Condvar,
    }

    impl Shared {
        pub(crate) fn handle_job(&self, _: ConnectionHandle, done: Option<JobDone>) {
            drop(done);
            *self.done.lock().expect("nobody panics with it") += 1;
            self.more.notify_one();
        }

        /// Waits until there are more results than `known`, and returns how many there are.
        pub(crate) fn wait(&self, known: usize) -> usize {
            let done = self.done.lock().expect("nobody panics with it");
            *self.more.wait_while(done, |done| *done == known).expect("nobody panics with it")
        }
    }
}

mod sync {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;
}

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_codec::Code;
use tidewire_figures::{ascending, median};
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::connection::Received;
use tidewire_proto::crypto::{AwsLc, Secret};
use tidewire_proto::endpoint::{Endpoint, EndpointConfig};
use tidewire_proto::profile::{Profile, block};
use tidewire_proto::rate::RateControl;
use tidewire_proto::wire::parse_code;

use shared::Shared;
use workers::{Work, Workers};

/// Jobs in a round, and the number of rounds. A round takes some tenths of a second, and the median of nine
/// rounds is repeatable.
const JOBS: usize = 200;
/// How often each job is run in a round.
const TIMES: usize = 10;
const ROUNDS: usize = 9;
/// Turns of 200 us between two FEEDBACKs: 10 ms, in which three generations leave.
const TURNS: usize = 50;

/// A generation whose job takes less time than handing it over.
const SMALL: (u16, u16) = (16, 4);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (k, r, code) = match &arguments[..] {
        [] => (256, 64, None),
        [k, r] => (k.parse()?, r.parse()?, None),
        [k, r, code] => (k.parse()?, r.parse()?, Some(parse_code(code)?)),
        _ => return Err("give K and R, or K, R and CODE".into()),
    };
    hand_over(&jobs(SMALL, None));
    let jobs: Vec<_> = core::iter::repeat_n(jobs((k, r), code), TIMES).flatten().collect();
    let blocks = jobs.len() as f64 / jobs.iter().map(|(_, job)| job.products()).sum::<usize>() as f64;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (workers, rates) in (0..).zip(&mut rates) {
            rates.push(rate(workers, jobs.clone()));
        }
    }
    let [none, one, two] = rates.map(|rates| {
        let rates = ascending(rates);
        (median(rates.iter().copied()), rates[0], rates[ROUNDS - 1])
    });
    println!(
        "{JOBS} jobs, each the {r} repairs of a block of {k} symbols; billions of products a second, median of {ROUNDS} (least, most), and blocks a second"
    );
    for (name, (middle, least, most)) in [("inline", none), ("1 worker", one), ("2 workers", two)] {
        let blocks = middle * blocks;
        println!("{name:<10} {:6.2} ({:.2}, {:.2}) {blocks:8.0}", middle / 1e9, least / 1e9, most / 1e9);
    }
    println!("2 workers over 1: {:.2}; 1 worker over inline: {:.2}", two.0 / one.0, one.0 / none.0);
    Ok(())
}

/// Prints what handing a job over adds: the time of jobs one after the other through a worker, minus that of
/// the same jobs inline.
fn hand_over(jobs: &[Work]) {
    let shared = Arc::<Shared>::default();
    let mut workers = Workers::start(1, &shared).expect("threads");
    let (mut fed, mut added, mut inline) = (Vec::new(), Vec::new(), Vec::new());
    for (number, work) in jobs.iter().enumerate() {
        let (mut handed, kept) = (Some(work.clone()), work.1.clone());
        let begun = Instant::now();
        workers.feed(|| handed.take());
        fed.push(begun.elapsed());
        shared.wait(number);
        let by_worker = begun.elapsed();
        let begun = Instant::now();
        drop(kept.run());
        inline.push(begun.elapsed());
        added.push(by_worker.saturating_sub(inline[number]));
    }
    let micros = |time: Duration| 1e6 * time.as_secs_f64();
    let [fed, added, inline] = [fed, added, inline].map(|times| median(times.into_iter().map(micros)));
    let products = jobs[0].1.products();
    let worth = |time: f64| products as f64 * time / inline;
    println!("a job of {products} products takes {inline:.1} us inline, medians of {JOBS}");
    println!("handing it over takes the driver {fed:.1} us, the time of {:.0} products", worth(fed));
    println!("its result comes {added:.1} us later than inline, the time of {:.0} products", worth(added));
}

/// Products per second.
fn rate(count: u16, mut jobs: Vec<Work>) -> f64 {
    let products: usize = jobs.iter().map(|(_, job)| job.products()).sum();
    if count == 0 {
        let begun = Instant::now();
        jobs.into_iter().for_each(|(_, job)| drop(job.run()));
        return products as f64 / begun.elapsed().as_secs_f64();
    }
    let shared = Arc::<Shared>::default();
    let mut workers = Workers::start(count, &shared).expect("threads");
    let begun = Instant::now();
    let mut done = 0;
    while done < JOBS * TIMES {
        workers.feed(|| jobs.pop());
        done = shared.wait(done);
    }
    products as f64 / begun.elapsed().as_secs_f64()
}

/// The jobs of a sender of generations whose peer receives everything.
fn jobs((k, r): (u16, u16), code: Option<Code>) -> Vec<Work> {
    let profile = Profile { rate_control: RateControl::Fixed { bits_per_second: 1_000_000_000 }, ..block(k, r) };
    let mut config = Config::default();
    // There is no round trip from which a rate could be found.
    config = config
        .to_builder()
        .profile(Profile { code: code.unwrap_or(profile.code), ..profile })
        .workers(1)
        .inline_products(0)
        .build()
        .expect("in range");
    let endpoint = |port: u8| {
        let (credentials, provider) = (Secret::new([7; 32]).into(), Arc::new(AwsLc));
        let config = EndpointConfig { credentials, listen: true, connection: config.clone(), provider };
        (Endpoint::new(config, [port; 32]), SocketAddr::from(([127, 0, 0, 1], port.into())))
    };
    let [(mut near, from), (mut far, to)] = [1, 2].map(endpoint);
    let mut now = Time::from_millis(1);
    let handle = near.connect(now, to).expect("a secret");
    let (mut stream, mut jobs, mut out, data) = (None, Vec::new(), vec![0; 1_472], vec![7; 1 << 16]);
    let mut turn = 0;
    while jobs.len() < JOBS {
        if let Some(connection) = near.connection_mut(handle) {
            stream = stream.or_else(|| connection.open_stream().ok());
            while stream.is_some_and(|stream| connection.write(stream, &data).is_ok()) {}
        }
        let accepted = far.connections().next().map(|(handle, _)| handle);
        if let Some((connection, stream)) = accepted.and_then(|handle| far.connection_mut(handle)).zip(stream) {
            let mut read = vec![0; 1 << 16];
            while connection.read(now, stream, &mut read).is_ok_and(|n| n > 0) {}
        }
        carry(now, (&mut near, from), &mut far, &mut out);
        // FEEDBACK before the end of a generation would make its repairs unnecessary.
        turn += 1;
        if turn % TURNS == 0 {
            carry(now, (&mut far, to), &mut near, &mut out);
        }
        while let Some((handle, job)) = near.poll_job() {
            jobs.push((handle, job.clone()));
            // Until it has this result, the lane makes no repairs of the next generations ahead.
            near.handle_job(now, handle, job.run());
        }
        now += Duration::from_micros(200);
    }
    jobs.truncate(JOBS);
    jobs
}

/// Delivers everything that one end has to send to the other.
fn carry(now: Time, (sender, from): (&mut Endpoint, SocketAddr), receiver: &mut Endpoint, out: &mut [u8]) {
    sender.handle_timeout(now);
    while let Some(transmit) = sender.poll_transmit(now, 1, out) {
        let datagram = &mut out[..transmit.len];
        receiver.handle_datagram(Received { at: now, from, to: None, ecn: None, datagram });
    }
    while sender.poll_event().is_some() {}
}
