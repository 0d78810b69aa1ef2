//! Paths with relays that recode: every byte arrives, whatever is lost; relays that change symbols are found.
#[test]
fn smoke() {
    let link = |seed: u64| {
        let mut link = DuplexConfig::default();
        link.set(Direction::Both, "rate", "20mbit", Path::new(".")).unwrap();
        link.set(Direction::Both, "rtt", "20ms", Path::new(".")).unwrap();
        link.set(Direction::Both, "loss", "10%", Path::new(".")).unwrap();
        link.set_seed(seed);
        link
    };
    let mut chain = Chain::new(&[link(1), link(2)], &Config::default(), Relaying::default(), &Config::default(), 1);
    let mut load = Load::new(&[Flow::bulk(Side::Near, 1_000_000)], 1);
    chain.connect();
    let done = chain.run(&mut load, Time::from_millis(60_000), |load, _| load.is_done());
    println!("{done} {:?} {:?} {:?}", chain.now(), load.errors, load.closed);
    println!("{:?} {:?}", chain.relay_stats(0), chain.relay_stats(1));
    println!("{:?} {:?}", chain.link_stats(0), chain.link_stats(1));
    assert!(done);
}
use std::path::Path;

use tidewire_proto::Time;
use tidewire_proto::config::Config;
use tidewire_proto::recode::Relaying;
use tidewire_sim::chain::Chain;
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::load::{Flow, Load};
use tidewire_sim::pair::End as Side;
use tidewire_sim::settings::Direction;
