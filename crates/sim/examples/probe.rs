use core::time::Duration;
use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::{End, Pair};
use tidewire_sim::settings::*;
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let red = args.get(1).map_or("adaptive", |s| s.as_str());
    let loss = args.get(2).map_or("0%", |s| s.as_str());
    let mb: f64 = args.get(3).map_or(48.0, |s| s.parse().unwrap());
    let rate: Option<u64> = args.get(4).map(|s| s.parse().unwrap());
    let mut link = DuplexConfig::default();
    link.set(Direction::Both, "rtt", "60ms", Path::new(".")).unwrap();
    link.set(Direction::Both, "rate", "25mbit", Path::new(".")).unwrap();
    link.set(Direction::Both, "queue", "60ms", Path::new(".")).unwrap();
    link.set(Direction::Forward, "loss", loss, Path::new(".")).unwrap();
    link.set_seed(7);
    let mut config = Config::default();
    config.redundancy = red.parse().unwrap();
    let t0 = std::time::Instant::now();
    let mut pair = Pair::new(config.clone(), config, &link, 3).unwrap();
    let bytes = (mb * 1e6) as u64;
    let flow = match rate { Some(r) => Flow::paced(End::Near, bytes, r), None => Flow::bulk(End::Near, bytes) };
    let mut load = Load::new(&[flow], 1);
    pair.connect(&mut load);
    let mut done = false;
    let step: u64 = std::env::var("STEP").ok().and_then(|v| v.parse().ok()).unwrap_or(120_000);
    let mut at = step;
    let mut last = 0;
    while !done && at <= 120_000 {
        done = pair.run(&mut load, Time::from_millis(at), Load::is_done);
        at += step;
        if step < 120_000 {
            let read = load.read();
            let c = load.handle(End::Near).and_then(|h| pair.endpoint(End::Near).connection(h).map(|c| c.stats())).unwrap();
            println!("{at} {:.2} Mbit/s {:?} pace {:.2} loss {:.3} burst {:.1} rtt {:?}", (read - last) as f64 * 8e-3 / step as f64, c.packets, c.pacing_bps as f64/1e6, c.recent_loss, c.mean_burst, c.rtt_mean);
            if at > 18_100 { let f = load.handle(End::Far).and_then(|h| pair.endpoint(End::Far).connection(h).map(|c| format!("{c:?}"))); println!("FAR {}", f.unwrap().chars().take(9000).collect::<String>()); let f = load.handle(End::Near).and_then(|h| pair.endpoint(End::Near).connection(h).map(|c| format!("{c:?}"))); println!("NEAR {}", f.unwrap());}
            last = read;
        }
    }
    let secs = pair.now().as_secs_f64();
    let near = load.handle(End::Near).and_then(|h| pair.endpoint(End::Near).connection(h).map(|c| c.stats()));
    let far = load.handle(End::Far).and_then(|h| pair.endpoint(End::Far).connection(h).map(|c| c.stats()));
    println!("done {done} errors {:?} closed {:?} t {secs:.3} goodput {:.3} Mbit/s datagrams {} wall {:.2}s", load.errors, load.closed, bytes as f64 * 8e-6 / secs, pair.datagrams(), t0.elapsed().as_secs_f64());

    let b3 = load.read_by(Time::from_millis(3000));
    println!("steady {:.3} Mbit/s", (load.read() - b3) as f64 * 8e-6 / (secs - 3.0));
    if let (Some(n), Some(f)) = (near, far) {
        println!("near {:?} sent/app {:.3} rtt {:?}/{:?} loss {:.4} recent {:.4} burst {:.2} pacing {:.2} mtu {}", n.packets, n.wire_bytes_sent as f64 / f.app_bytes_received.max(1) as f64, n.rtt_min, n.rtt_mean, n.loss, n.recent_loss, n.mean_burst, n.pacing_bps as f64 / 1e6, n.datagram_size);
        println!("far {:?} {:?} back/app {:.4}", f.packets, f.symbols, f.wire_bytes_sent as f64 / f.app_bytes_received.max(1) as f64);
        let d = &f.delay;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        println!("delay mean {:.2} p50 {:.2} p95 {:.2} p99 {:.2} max {:.2}", ms(d.mean()), ms(d.quantile(0.5)), ms(d.quantile(0.95)), ms(d.quantile(0.99)), ms(d.max()));
    }
    let link = pair.link_mut();
    println!("link fwd {:?} mean queue {:?}", link.forward.stats(), link.forward.stats().mean_queueing());
}
